"""Reading a built layer back into the arguments that make one like it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from timm.layers import GELU, GluMlp, LayerNorm, LayerNormFp32, Mlp, QuickGELU, RmsNorm, SwiGLU
from timm.layers.activations import GELUTanh
from torch import nn

from vit_rpe.precision import is_computed

NORMS: dict[type[nn.Module], str] = {
    nn.LayerNorm: "layernorm",
    LayerNorm: "layernorm",
    LayerNormFp32: "layernormfp32",
    RmsNorm: "rmsnorm",
}
ACTS: dict[type[nn.Module], str] = {
    nn.GELU: "gelu",
    GELU: "gelu",
    GELUTanh: "gelu_tanh",
    QuickGELU: "quick_gelu",
    nn.SiLU: "silu",
    nn.ReLU: "relu",
}


def name_of(model: nn.Module) -> str:
    """What timm calls a model, else the name of its class."""
    return getattr(model, "pretrained_cfg", {}).get("architecture") or type(model).__name__


def is_ours(model: object) -> bool:
    """Whether a model is one of this package's."""
    return type(model).__module__.partition(".")[0] == __name__.partition(".")[0]


def require_foreign(model: nn.Module) -> None:
    """Raise ValueError for a model of this package, which needs no conversion."""
    if is_ours(model):
        raise ValueError(
            f"{name_of(model)} is a model of this package already: choose its encoding when it is created, "
            "timm.create_model(NAME, rpe=...)"
        )


def cannot_express(name: str, part: str) -> ValueError:
    """The error for a model with a part that ours does not have."""
    return ValueError(f"{name} cannot be expressed as a vit_rpe model: it has {part}")


def require(condition: bool, name: str, part: str) -> None:
    """Raise :func:`cannot_express` unless the condition holds."""
    if not condition:
        raise cannot_express(name, part)


def require_plain(model: nn.Module, name: str) -> None:
    """Raise ValueError where the weights of a model are not those of its layers alone; its head is no matter."""
    for path, layer in model.named_modules():
        plain = type(layer).__module__.startswith(("torch.nn.modules.", "timm."))
        if not path.startswith("head") and (is_computed(layer) or not plain):
            raise ValueError(
                f"{name} cannot be converted: {path} is a {type(layer).__name__} whose weights are not those of a "
                "plain layer; merge adapters into their layers and make pruning and parametrisations permanent "
                "(prune.remove, parametrize.remove_parametrizations), or use add_rpe or replace_attention, which take "
                "layers as they are"
            )


def norm_args(name: str, norms: Iterable[nn.Module]) -> dict[str, Any]:
    """``norm_layer`` and ``norm_eps`` of a model whose norms are all alike."""
    kinds = {(type(norm), getattr(norm, "eps", None)) for norm in norms if not isinstance(norm, nn.Identity)}
    names = {NORMS.get(kind) for kind, _ in kinds}
    epsilons = {eps for _, eps in kinds}
    listed = ", ".join(sorted(f"{kind.__name__}(eps={eps})" for kind, eps in kinds))
    require(len(names) == 1 and None not in names and len(epsilons) == 1, name, f"norms {listed}")
    return {"norm_layer": names.pop(), "norm_eps": epsilons.pop()}


def mlp_args(name: str, mlp: Any, dim: int) -> dict[str, Any]:
    """``mlp_layer``, ``act_layer``, ``mlp_ratio`` and ``scale_mlp_norm`` of a block's MLP."""
    hidden: Any
    if type(mlp) is Mlp:
        layer, hidden = "mlp", mlp.fc1.out_features
    elif type(mlp) is SwiGLU:
        layer, hidden = "swiglu", mlp.fc1_g.out_features
    elif type(mlp) is GluMlp and not mlp.gate_last:
        layer, hidden = "swiglu_packed", mlp.fc1.out_features
    else:
        raise cannot_express(name, f"an MLP of type {type(mlp).__name__}")
    require(type(mlp.act) in ACTS, name, f"the activation {type(mlp.act).__name__}")
    return {
        "mlp_layer": layer,
        "act_layer": ACTS[type(mlp.act)],
        "mlp_ratio": ratio_of(int(hidden), dim),
        "scale_mlp_norm": not isinstance(mlp.norm, nn.Identity),
    }


def ratio_of(hidden: int, dim: int) -> float:
    """The ratio r with int(dim r) == hidden, rounding included."""
    ratio = hidden / dim
    while int(dim * ratio) < hidden:
        ratio *= 1 + 2**-52
    return ratio


def drop_rate(module: nn.Module | None) -> float:
    """The probability of a dropout or stochastic depth layer, 0 for none."""
    if isinstance(module, nn.Dropout):
        return float(module.p)
    return float(getattr(module, "drop_prob", None) or 0.0)
