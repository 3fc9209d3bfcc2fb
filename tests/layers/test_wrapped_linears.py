"""Whatever takes the place of a linear layer is called: adapters, hooks, parametrisations, pruning, quantisation."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, prune
from torch.testing import assert_close

import vit_rpe
from vit_rpe import RelativeMultiheadAttention, TokenGrid
from vit_rpe.encodings import encoding_class, list_encodings

DIM, HEADS = 24, 3


class Adapter(nn.Module):
    """A low-rank update beside a layer, and no attribute of the layer's."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Parameter(torch.randn(2, base.in_features, dtype=base.weight.dtype) * 0.3)
        self.up = nn.Parameter(torch.randn(base.out_features, 2, dtype=base.weight.dtype) * 0.3)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + x @ self.down.mT @ self.up.mT


class Doubled(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return 2 * weight


# Each wraps a linear layer, and changes a copy of it to what it then computes.


def adapter(layer: nn.Linear, same: nn.Linear) -> nn.Module:
    wrapped = Adapter(layer)
    same.weight += wrapped.up @ wrapped.down
    return wrapped


def hook(layer: nn.Linear, same: nn.Linear) -> nn.Module:
    layer.register_forward_hook(lambda module, inputs, output: 2 * output)
    for parameter in same.parameters():
        parameter *= 2
    return layer


def parametrisation(layer: nn.Linear, same: nn.Linear) -> nn.Module:
    same.weight *= 2
    return parametrize.register_parametrization(layer, "weight", Doubled())


def weight_norm(layer: nn.Linear, same: nn.Linear) -> nn.Module:
    same.weight *= 3
    wrapped = parametrizations.weight_norm(layer)
    wrapped.parametrizations.weight.original0 *= 3
    return wrapped


def pruned(layer: nn.Linear, same: nn.Linear) -> nn.Module:
    mask = (torch.arange(same.weight.numel()) % 3 > 0).view(same.weight.shape)
    same.weight *= mask
    return prune.custom_from_mask(layer, "weight", mask)


def replaced_forward(layer: nn.Linear, same: nn.Linear) -> nn.Module:
    same.weight *= 2
    original = layer.forward
    layer.forward = lambda x: original(2 * x) if layer.bias is None else 2 * original(x) - layer.bias
    return layer


WRAPPERS = (adapter, hook, parametrisation, weight_norm, pruned, replaced_forward)


def attention_with(name: str, **options: Any) -> RelativeMultiheadAttention:
    axes = max(axes for axes in encoding_class(name).card.axes if axes <= 2)
    grid = TokenGrid((2, 3)[-axes:])
    layer = RelativeMultiheadAttention(DIM, HEADS, rpe=name, grid=grid, **options).eval()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.5)
    return layer


def linears(layer: nn.Module) -> list[str]:
    return [name for name, module in layer.named_modules() if isinstance(module, nn.Linear)]


def places() -> list[tuple[str, str]]:
    """Every linear layer of attention with every encoding; those of attention itself with one."""
    found = []
    for name in list_encodings():
        found += [(name, place) for place in linears(attention_with(name)) if place.startswith("rpe") or name == "bias"]
    return found


def outputs(layer: RelativeMultiheadAttention, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Of self-attention and of cross-attention, on the same tokens for every layer."""
    generator = torch.Generator().manual_seed(5)
    x, context = torch.randn(2, 2, layer.grid.num_patches, DIM, generator=generator, dtype=dtype).unbind(0)
    return [layer(x), layer(x, context=context)]


@pytest.mark.parametrize("wrap", WRAPPERS)
@pytest.mark.parametrize(("name", "place"), places())
def test_a_wrapped_layer_is_the_layer_it_computes(
    name: str, place: str, wrap: Callable[[nn.Linear, nn.Linear], nn.Module]
) -> None:
    layer = attention_with(name).double()
    same = copy.deepcopy(layer)
    untouched = outputs(layer)
    with torch.no_grad():
        layer.set_submodule(place, wrap(layer.get_submodule(place), same.get_submodule(place)))
    for found, right, other in zip(outputs(layer), outputs(same), untouched, strict=True):
        assert_close(found, right)
        assert not torch.equal(found, other)
        own = list(layer.get_submodule(place).parameters())
        gradients = torch.autograd.grad(found.square().sum(), own, allow_unused=True)
        assert all(gradient is not None and gradient.abs().sum() > 0 for gradient in gradients)


@pytest.mark.parametrize("wrap", WRAPPERS)
@pytest.mark.parametrize(("name", "place"), [(name, place) for name, place in places() if place.startswith("rpe")])
def test_another_native_grid_keeps_what_was_put_around_a_layer(
    name: str, place: str, wrap: Callable[[nn.Linear, nn.Linear], nn.Module]
) -> None:
    layer = attention_with(name).double()
    same = copy.deepcopy(layer)
    with torch.no_grad():
        layer.set_submodule(place, wrap(layer.get_submodule(place), same.get_submodule(place)))
    assert layer.grid is not None
    grid = TokenGrid(tuple(size + 2 for size in layer.grid.size))
    layer.set_grid(grid)
    same.set_grid(grid)
    for found, right in zip(outputs(layer), outputs(same), strict=True):
        assert_close(found, right)


@pytest.mark.parametrize("name", ["cpb", "fire"])
def test_a_wrapped_layer_cannot_be_zeroed_silently(name: str) -> None:
    layer = attention_with(name)
    parametrizations.weight_norm(layer.rpe.fc2)
    with pytest.raises(ValueError, match="before adapters are put around it"):
        layer.rpe.zero_()


@pytest.mark.filterwarnings("ignore:.*quantiz.*")
@pytest.mark.parametrize("name", list_encodings())
def test_dynamic_quantisation(name: str) -> None:
    layer = attention_with(name)
    small = torch.ao.quantization.quantize_dynamic(copy.deepcopy(layer), {nn.Linear}, dtype=torch.qint8)
    assert not linears(small)
    with torch.no_grad():
        for found, right in zip(outputs(small, torch.float32), outputs(layer, torch.float32), strict=True):
            assert not torch.equal(found, right)
            assert (found - right).norm() < 0.1 * right.norm()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("name", "place"), [place for place in places() if place[1].startswith("rpe")])
def test_positions_stay_float32_around_an_adapter(name: str, place: str, dtype: torch.dtype) -> None:
    layer = attention_with(name).to(dtype)
    layer.set_submodule(place, Adapter(layer.get_submodule(place)))
    exact = copy.deepcopy(layer).double()
    grid = layer.grid

    def numbers(terms: vit_rpe.PositionTerms) -> list[Tensor]:
        parts = [terms.bias, *terms.offset_bias, *(part.bias for part in terms.axis_bias)]
        parts += [part.table for part in (*terms.on_query, *terms.on_key)]
        return [part for part in parts if part is not None]

    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = numbers(layer.rpe(grid, grid))
    assert all(part.dtype == torch.float32 for part in found)
    assert_close([part.double() for part in found], numbers(exact.rpe(grid, grid)), atol=1e-4, rtol=1e-4)
