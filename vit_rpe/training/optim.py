"""The optimiser, from timm's factory, over groups of parameters that learn alike.

Parameter groups are made from the unwrapped model, and a group holds the parameters themselves: a name that gains
``module.`` or ``_orig_mod.`` under a wrapper can therefore not slip past a rule.
"""

from __future__ import annotations

from fnmatch import fnmatch
from glob import escape
from typing import Any

import timm.optim
from timm.models import group_parameters
from torch import nn
from torch.optim import Optimizer

from vit_rpe.encodings import PositionEncoding
from vit_rpe.training.config.schema import TrainConfig

__all__ = ["learns_position", "make_optimizer", "parameter_groups", "parameter_names", "unwrapped"]


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside ``torch.compile``, ``DistributedDataParallel`` and ``DataParallel`` wrappers."""
    children = dict(model.named_children())
    while set(children) in ({"_orig_mod"}, {"module"}):
        (model,) = children.values()
        children = dict(model.named_children())
    return model


def parameter_groups(
    model: nn.Module, *, weight_decay: float, layer_decay: float | None = None, position_lr: float = 1.0
) -> list[dict[str, Any]]:
    """Groups of parameters for an optimiser, of our models and of any model that has our parts somewhere inside.

    Parameters with one axis or none, and those that a module names in ``no_weight_decay()`` (tokens, embeddings, the
    tables, vectors and frequencies of encodings; not the matrices of networks inside encodings), are not decayed. The
    latter also carry ``use_fallback``: they are not weight matrices, so Muon leaves them to its AdamW.

    Args:
        model: the model; wrappers are taken off.
        weight_decay: decay of all the others.
        layer_decay: factor on the learning rate from each layer to the one below it. A model that does not know its
            layers must hold exactly one that does; what lies outside of that one learns at the full rate.
        position_lr: factor on the learning rate of everything inside a position encoding.

    Returns:
        Dicts with ``params`` and ``weight_decay``, and with ``lr_scale`` (the factor) or ``use_fallback`` where they
        apply. Every trainable parameter is in one group.

    Raises:
        ValueError: ``layer_decay`` without layers, or ``position_lr`` without a parameter it could change.
    """
    model = unwrapped(model)
    spared, positions = _spared(model), _inside_encodings(model)
    if position_lr != 1 and not positions:
        raise ValueError(
            f"position_lr={position_lr:g} would change nothing: no encoding of this model has trainable parameters; "
            "leave it at 1"
        )
    layers, top = ({}, 0) if layer_decay is None else _layers(model)
    groups: dict[tuple, dict[str, Any]] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        fallback = any(fnmatch(name, pattern) for pattern in spared)
        whole = fallback or parameter.ndim <= 1 or name.endswith(".bias")
        decayed = not whole and (bool(weight_decay) or layer_decay is not None)
        layer, factor = layers.get(name, top), position_lr if name in positions else 1.0
        if (layer, decayed, fallback, factor) not in groups:
            group: dict[str, Any] = {"params": [], "weight_decay": weight_decay if decayed else 0.0}
            scale = factor if layer_decay is None else factor * layer_decay ** (top - layer)
            group |= {"lr_scale": scale} if layer_decay is not None or factor != 1 else {}
            group |= {"use_fallback": True} if fallback else {}
            groups[layer, decayed, fallback, factor] = group
        groups[layer, decayed, fallback, factor]["params"].append(parameter)
    if layer_decay is None:
        return [groups[key] for key in sorted(groups, key=lambda key: (key[2], key[1], key[3] != 1))]
    return list(groups.values())


def _spared(model: nn.Module) -> set[str]:
    """What every module inside names in ``no_weight_decay()``, by full name; names may be shell patterns."""
    found: set[str] = set()
    for path, module in model.named_modules():
        name_them = getattr(module, "no_weight_decay", None)
        if callable(name_them):
            found |= {f"{escape(path)}.{own}" if path else own for own in name_them()}
    return found


def learns_position(model: nn.Module) -> bool:
    """Whether an encoding in ``model`` has trainable parameters: only then ``position_lr`` has an effect."""
    return bool(_inside_encodings(model))


def _inside_encodings(model: nn.Module) -> set[str]:
    """Full names of the trainable parameters of encodings."""
    own = {
        id(parameter)
        for module in model.modules()
        if isinstance(module, PositionEncoding)
        for parameter in module.parameters()
        if parameter.requires_grad
    }
    return {name for name, parameter in model.named_parameters() if id(parameter) in own}


def _layers(model: nn.Module) -> tuple[dict[str, int], int]:
    """The layer of each parameter by name, from the input up, and the number of the last layer."""
    knowing: dict[str, nn.Module] = {}
    for path, module in model.named_modules():
        if hasattr(module, "group_matcher") and not any(_below(path, outer) for outer in knowing):
            knowing[path] = module
    if len(knowing) != 1:
        raise ValueError(
            f"layer_decay needs a model with one part that knows its layers (group_matcher), {type(model).__name__} "
            f"has {len(knowing)}"
        )
    ((path, module),) = knowing.items()
    found = group_parameters(module, module.group_matcher(coarse=False), reverse=True)  # type: ignore[operator]
    return {f"{path}.{name}" if path else name: layer for name, layer in found.items()}, max(found.values())


def _below(path: str, outer: str) -> bool:
    return not outer or path.startswith(f"{outer}.")


def parameter_names(model: nn.Module, optimizer: Optimizer) -> list[list[str]]:
    """The names of the parameters of each group, in the optimiser's order."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [[names[id(parameter)] for parameter in group["params"]] for group in optimizer.param_groups]


def make_optimizer(model: nn.Module, config: TrainConfig) -> Optimizer:
    """The optimiser of a config over ``parameter_groups``.

    Raises:
        ValueError: one that this machine lacks something for, or groups that cannot be made.
    """
    groups = parameter_groups(
        model,
        weight_decay=config.weight_decay,
        layer_decay=config.layer_decay,
        position_lr=config.position_lr,
    )
    betas: dict[str, Any] = {} if config.betas is None else {"betas": tuple(config.betas)}
    try:
        return timm.optim.create_optimizer_v2(
            groups, opt=config.optimizer, lr=config.lr, momentum=config.momentum, weight_decay=0.0, **betas
        )
    except (AssertionError, ImportError) as error:  # timm's way to say that a GPU or a package is missing
        raise ValueError(f"train.optimizer={config.optimizer} cannot be made on this machine: {error}") from error
