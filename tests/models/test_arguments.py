"""What constructors take, over every argument of every class people build: types, ranges, names, and whose numbers."""

from __future__ import annotations

import inspect
import json
from types import NoneType
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import nn

import vit_rpe
from vit_rpe.layers import Block
from vit_rpe.models.sequence import SequenceTransformer

BUILT: dict[type[nn.Module], dict[str, Any]] = {
    vit_rpe.VisionTransformer: {
        **{"img_size": (16, 24), "patch_size": 8, "in_chans": 1, "num_classes": 5, "embed_dim": 16, "depth": 2},
        **{"num_heads": 2, "mlp_ratio": 2.0, "window": (1, 2), "reg_tokens": 1, "init_values": 0.5, "norm_eps": 0.1},
        **{"drop_rate": 0.1, "patch_drop_rate": 0.25, "class_token": True, "qk_norm": True, "logit_clip": 5.0},
        **{"rpe": [{"name": "bias", "max_distance": 2, "init_std": 0.5}, {"name": "t5", "num_buckets": 8}]},
    },
    SequenceTransformer: {
        **{"vocab_size": 7, "length": 6, "num_classes": 3, "embed_dim": 16, "depth": 1, "num_heads": 2, "window": 2},
        **{"mlp_ratio": 2.0, "drop_rate": 0.1, "class_token": True, "init_values": 0.5, "rpe": {"name": "shaw"}},
    },
    vit_rpe.RelativeMultiheadAttention: {
        **{"dim": 16, "num_heads": 2, "rpe": {"name": "bias", "max_distance": (1, 2)}, "grid": (2, 3), "window": 1},
        **{"dropout": 0.1, "logit_clip": 5.0, "qk_norm": True},
    },
    Block: {"dim": 16, "num_heads": 2, "mlp_ratio": 2.0, "drop_path": 0.1, "init_values": 0.5, "proj_bias": False},
    vit_rpe.RelativePositionBias: {"num_heads": 2, "max_relative_distance": 3, "init_std": 0.5},
    vit_rpe.LearnedEmbedding: {"grid": vit_rpe.TokenGrid((2, 3)), "dim": 16, "init_std": 0.5},
}
OF_TYPE: dict[Any, list[Any]] = {
    int: ["3", 2.5, True, float("nan"), torch.tensor(2.5)],
    float: ["0.5", True, float("nan"), float("inf"), np.float64("nan")],
    bool: ["yes", 1, 0.0, np.int64(1)],
    str: [3, b"avg", ("avg",)],
}
"""Values that are of no such type."""


def build(cls: type[nn.Module], options: dict[str, Any]) -> nn.Module:
    torch.manual_seed(0)
    return cls(**options)


def numbers_of(kind: str, value: Any) -> Any:
    """The numbers in ``value`` as NumPy's or torch's."""
    if isinstance(value, (tuple, list)):
        return type(value)(numbers_of(kind, each) for each in value)
    if isinstance(value, dict):
        return {key: numbers_of(kind, each) for key, each in value.items()}
    if not isinstance(value, (bool, int, float)):
        return value
    if kind == "torch":
        return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)
    return {bool: np.bool_, int: np.int32, float: np.float64}[type(value)](value)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("cls", BUILT)
def test_whose_numbers_makes_no_difference(cls: type[nn.Module], kind: str) -> None:
    expected = build(cls, BUILT[cls])
    found = build(cls, {key: numbers_of(kind, value) for key, value in BUILT[cls].items()})
    assert repr(found) == repr(expected)
    torch.testing.assert_close(found.state_dict(), expected.state_dict(), rtol=0, atol=0)
    for module in found.modules():
        for name, value in vars(module).items():
            assert not isinstance(value, np.generic), name
            assert name[:1] == "_" or not (isinstance(value, torch.Tensor) and value.ndim == 0), name


def judged(cls: type[nn.Module]) -> list[Any]:
    """The arguments of simple types, each with values that it cannot have."""
    cases = []
    for name, parameter in inspect.signature(cls.__init__, eval_str=True).parameters.items():
        types = get_args(parameter.annotation) or (parameter.annotation,)
        if all(kind in (*OF_TYPE, NoneType) for kind in types):
            bad = [value for kind in types for value in OF_TYPE.get(kind, [])]
            bad += [None] * (NoneType not in types) + [-1] * (int in types)
            cases.append(pytest.param(cls, name, bad, id=f"{cls.__name__}-{name}"))
    return cases


@pytest.mark.parametrize(("cls", "name", "bad"), [case for cls in BUILT for case in judged(cls)])
def test_every_argument_is_judged_by_its_type_and_named(cls: type[nn.Module], name: str, bad: list[Any]) -> None:
    for value in bad:
        with pytest.raises(ValueError, match=rf"^(unknown )?{name}\b"):
            cls(**{**BUILT[cls], name: value})


@pytest.mark.parametrize("cls", BUILT)
def test_an_argument_that_does_not_exist_is_told_with_the_closest(cls: type[nn.Module]) -> None:
    for name in BUILT[cls]:
        if len(name) > 4:
            words = rf"{cls.__name__} has no argument '{name}x' \(did you mean '{name}'\?\)"
            with pytest.raises(ValueError, match=words):
                build(cls, {**BUILT[cls], f"{name}x": 1})


@pytest.mark.parametrize("value", [-1, 2.5, True, "10", None, np.float32(3)])
def test_a_head_of_an_odd_number_of_classes_leaves_the_model_as_it_was(value: Any) -> None:
    model: Any = build(vit_rpe.VisionTransformer, BUILT[vit_rpe.VisionTransformer])
    with pytest.raises(ValueError, match="num_classes must be an integer of at least 0"):
        model.reset_classifier(value, "max")
    assert (model.num_classes, model.global_pool, model.head.out_features) == (5, "avg", 5)
    model.reset_classifier(np.int64(3))
    model.set_input_size((np.int64(8), np.int64(16)))
    assert type(model.num_classes) is int
    json.dumps(model._model_args)


@pytest.mark.parametrize(("option", "known"), [("norm_layer", "layernorm"), ("act_layer", "gelu")])
def test_layers_by_an_unknown_name(option: str, known: str) -> None:
    with pytest.raises(ValueError, match=rf"unknown {option} '{known}x' \(did you mean '{known}'\?\)"):
        build(vit_rpe.VisionTransformer, {**BUILT[vit_rpe.VisionTransformer], option: f"{known}x"})


def test_sizes_of_numpy_are_checked_like_any() -> None:
    grid = vit_rpe.TokenGrid((np.int64(2), np.int16(3)), num_prefix=np.int64(1), origin=(np.int8(0), np.int8(1)))
    assert grid == vit_rpe.TokenGrid((2, 3), 1, (0, 1))
    with pytest.raises(ValueError, match="every axis needs at least one token"):
        vit_rpe.TokenGrid((np.int64(0), np.int64(3)))
