"""What people put around the layers of a model, and what the layers then compute."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, prune, weight_norm

LAYERS = (nn.Linear, nn.Conv2d)


class Beside(nn.Module):
    """A second layer beside one, and no attribute of its: neither a weight nor sizes."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer
        self.side = copy.deepcopy(layer)
        with torch.no_grad():
            for parameter in self.side.parameters():
                parameter.copy_(torch.randn(parameter.shape, dtype=parameter.dtype) * parameter.square().mean().sqrt())

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x) + self.side(x)
        return out


class Telling(Beside):
    """The same as adapter libraries make it: it tells the weight and the sizes of the layer inside."""

    def __init__(self, layer: Any) -> None:
        super().__init__(layer)
        for name in ("in_features", "out_features", "in_channels", "out_channels", "kernel_size", "stride", "padding"):
            if hasattr(layer, name):
                setattr(self, name, getattr(layer, name))

    @property
    def weight(self) -> Tensor:
        found: Tensor = self.layer.weight
        return found

    @property
    def bias(self) -> Tensor | None:
        found: Tensor | None = self.layer.bias
        return found


class Passing(nn.Module):
    """Something around a module that hands on what it is given and asked, as torch's wrapper for checkpointing does."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.inside = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.inside(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inside"), name)


class Doubled(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return 2 * weight


def parametrised(layer: nn.Module) -> nn.Module:
    return parametrize.register_parametrization(layer, "weight", Doubled())


def normalised(layer: nn.Module) -> nn.Module:
    wrapped = parametrizations.weight_norm(layer)
    with torch.no_grad():
        wrapped.parametrizations.weight.original0 *= 1.5
    return wrapped


def pruned(layer: Any) -> nn.Module:
    mask = (torch.arange(layer.weight.numel()) % 3 > 0).view(layer.weight.shape)
    return prune.custom_from_mask(layer, "weight", mask)


def hooked(layer: nn.Module) -> nn.Module:
    layer.register_forward_hook(lambda module, inputs, output: 1.5 * output)
    return layer


def forwarded(layer: Any) -> nn.Module:
    original = layer.forward
    layer.forward = lambda x: 1.5 * original(x)
    return layer


def in_sequence(layer: Any) -> nn.Module:
    return nn.Sequential(layer, nn.Tanh())


def without_bias(layer: Any) -> nn.Module:
    layer.bias = None
    return layer


WRAPPERS: dict[str, Callable[[Any], nn.Module]] = {
    "beside": Beside,
    "parametrisation": parametrised,
    "weight norm": normalised,
    "old weight norm": weight_norm,
    "spectral norm": parametrizations.spectral_norm,
    "pruned": pruned,
    "hook": hooked,
    "forward": forwarded,
    "sequence": in_sequence,
    "no bias": without_bias,
}
CALLED = ("beside", "hook", "forward", "sequence")
"""What has no effect where the weight of a layer is read."""


def layers_of(module: nn.Module) -> list[str]:
    return [name for name, part in module.named_modules() if isinstance(part, LAYERS)]


def wrap(module: nn.Module, names: Iterable[str], around: Callable[[Any], nn.Module]) -> None:
    """Put something around the layers with these names, in place."""
    for name in names:
        module.set_submodule(name, around(module.get_submodule(name)))


@torch.no_grad()
def merge(module: nn.Module, like: nn.Module, names: Iterable[tuple[str, str]]) -> None:
    """Add to layers of ``module`` what adapters in ``like`` have beside them; names in the one and in the other."""
    for name, other in names:
        layer, adapter = module.get_submodule(name), like.get_submodule(other)
        assert isinstance(adapter, Beside)
        for own, added in zip(layer.parameters(), adapter.side.parameters(), strict=True):
            own += added
