"""Layers by name, so that a model's arguments can be written to JSON and read back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from timm.layers import GluMlp, LayerNorm, Mlp, SwiGLU, get_act_layer, get_norm_layer
from torch import nn

from vit_rpe.checks import closest, unknown_name

LayerType = str | Callable[..., nn.Module] | None

MLPS: dict[str, Callable[..., nn.Module]] = {
    "mlp": Mlp,
    "swiglu": SwiGLU,  # gate and value in two projections
    "swiglu_packed": partial(GluMlp, gate_last=False),  # one projection, its first half is the gate
}


NORMS = ("layernorm", "rmsnorm", "simplenorm", "groupnorm", "batchnorm")
ACTS = ("gelu", "gelu_tanh", "quick_gelu", "relu", "silu", "mish", "hard_swish", "leaky_relu")


def norm_factory(norm_layer: LayerType, eps: float | None) -> Callable[..., nn.Module]:
    """A norm by timm's name or as it is (None: timm's LayerNorm), with its own ``eps`` unless one is given.

    Raises:
        ValueError: an unknown name.
    """
    norm = _named("norm_layer", norm_layer, get_norm_layer, NORMS) or LayerNorm
    return norm if eps is None else partial(norm, eps=eps)


def act_factory(act_layer: LayerType) -> Callable[..., nn.Module]:
    """An activation by timm's name or as it is (None: GELU).

    Raises:
        ValueError: an unknown name.
    """
    return _named("act_layer", act_layer, get_act_layer, ACTS) or nn.GELU


def _named(option: str, given: LayerType, find: Callable[[Any], Any], some: tuple[str, ...]) -> Any:
    """What timm knows under a name; ``some`` of its names help to find the closest."""
    try:
        return find(given)
    except KeyError as error:
        raise ValueError(
            f"unknown {option} {given!r}{closest(str(given), some)}: a name that timm knows ({', '.join(some)} ...) or "
            "a class"
        ) from error


def mlp_factory(mlp_layer: str | Callable[..., Any]) -> Callable[..., nn.Module]:
    """An MLP by name or as it is.

    Raises:
        ValueError: an unknown name.
    """
    return by_name("mlp_layer", mlp_layer, MLPS)


def by_name(
    option: str, given: str | Callable[..., Any], known: Mapping[str, Callable[..., Any]]
) -> Callable[..., Any]:
    """What ``known`` has under a name, or what is given as it is.

    Raises:
        ValueError: an unknown name; the message says of which ``option``.
    """
    if not isinstance(given, str):
        return given
    if given not in known:
        raise unknown_name(option, given, known)
    return known[given]
