"""Parameter groups and the learning rate."""

from __future__ import annotations

import re
import warnings

import pytest
import timm
import torch
from torch import nn

import vit_rpe
from vit_rpe.training.config.schema import TrainConfig
from vit_rpe.training.optim import make_optimizer, parameter_groups, unwrapped
from vit_rpe.training.schedule import Schedule


def _model(rpe: object = "bias", **more: object) -> nn.Module:
    return timm.create_model(
        "vit_rpe_nano_patch2_8", rpe=rpe, embed_dim=48, depth=3, num_heads=2, in_chans=1, num_classes=3, **more
    )


class Wrapper(nn.Module):
    """What DistributedDataParallel does to names."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


WRAPPERS = {
    "plain": lambda model: model,
    "compiled": lambda model: torch.compile(model, backend="eager"),
    "distributed": Wrapper,
    "both": lambda model: Wrapper(torch.compile(model, backend="eager")),
}


@pytest.mark.parametrize("wrap", WRAPPERS)
@pytest.mark.parametrize("layer_decay", [None, 0.7])
def test_what_is_decayed(wrap: str, layer_decay: float | None) -> None:
    model = _model(class_token=True, pos_embed="learned", reg_tokens=2)
    groups = parameter_groups(WRAPPERS[wrap](model), weight_decay=0.3, layer_decay=layer_decay)
    decay = {id(parameter): group["weight_decay"] for group in groups for parameter in group["params"]}
    assert sum(len(group["params"]) for group in groups) == len(decay) == len(list(model.parameters()))
    for name, parameter in model.named_parameters():
        matrix = name.endswith("weight") and parameter.ndim >= 2 and "rpe" not in name
        assert decay[id(parameter)] == (0.3 if matrix else 0.0), name
    assert unwrapped(WRAPPERS[wrap](model)) is model


@pytest.mark.parametrize("rpe", vit_rpe.list_encodings())
def test_nothing_an_encoding_calls_its_own_is_decayed(rpe: str) -> None:
    model = _model(rpe)
    groups = parameter_groups(model, weight_decay=0.3)
    decay = {id(parameter): group["weight_decay"] for group in groups for parameter in group["params"]}
    for encoding in model.modules():
        if isinstance(encoding, vit_rpe.PositionEncoding):
            own = encoding.no_weight_decay()
            for name, parameter in encoding.named_parameters():
                if not parameter.requires_grad:  # drawn once, in no group
                    continue
                assert decay[id(parameter)] == (0.0 if name in own or parameter.ndim < 2 else 0.3), name


def test_layers_learn_slower_towards_the_input() -> None:
    model = _model()
    scale = {
        id(parameter): group["lr_scale"]
        for group in parameter_groups(model, weight_decay=0.1, layer_decay=0.5)
        for parameter in group["params"]
    }
    named = dict(model.named_parameters())
    assert [scale[id(named[f"blocks.{i}.attn.qkv.weight"])] for i in range(3)] == [0.125, 0.25, 0.5]
    assert scale[id(named["blocks.1.attn.rpe.table"])] == 0.25
    assert scale[id(named["patch_embed.proj.weight"])] == 0.0625
    assert scale[id(named["head.weight"])] == 1.0
    config = TrainConfig(epochs=4, lr=0.1, warmup_epochs=0, layer_decay=0.5, min_lr=0)
    optimizer = make_optimizer(model, config)
    assert Schedule(config).apply(optimizer, 2) == pytest.approx(0.05)
    for group in optimizer.param_groups:
        assert group["lr"] == pytest.approx(0.05 * group["lr_scale"])


@pytest.mark.parametrize("layer_decay", [None, 0.8])
def test_muon_leaves_tables_to_adamw(layer_decay: float | None) -> None:
    model = _model(class_token=True)
    optimizer = make_optimizer(model, TrainConfig(optimizer="muon", lr=0.01, layer_decay=layer_decay))
    model(torch.randn(4, 1, 8, 8)).square().sum().backward()
    optimizer.step()
    named = dict(model.named_parameters())
    orthogonal = {name for name, parameter in named.items() if optimizer.state[parameter]["use_muon"]}
    assert "blocks.0.attn.qkv.weight" in orthogonal
    assert not {name for name in orthogonal if "rpe" in name or named[name].ndim < 2 or "token" in name}
    assert "exp_avg" in optimizer.state[named["blocks.0.attn.rpe.table"]]


@pytest.mark.parametrize("name", ["adamw", "lamb", "sgd", "lion", "adan"])
def test_optimisers_of_timm(name: str) -> None:
    model = _model()
    before = model.head.weight.detach().clone()
    optimizer = make_optimizer(model, TrainConfig(optimizer=name, betas=None))
    model(torch.randn(4, 1, 8, 8)).square().sum().backward()
    optimizer.step()
    assert not torch.equal(before, model.head.weight)


class InOnesOwnModel(nn.Module):
    """Our attention and embedding as parts of someone else's model."""

    def __init__(self, rpe: object) -> None:
        super().__init__()
        grid = vit_rpe.TokenGrid((3, 4))
        self.embed = vit_rpe.LearnedEmbedding(grid, 48)
        self.layer = nn.ModuleDict({"mix": vit_rpe.RelativeMultiheadAttention(48, 2, grid=grid, rpe=rpe)})
        self.bias = vit_rpe.RelativePositionBias(2, 5)


def _retrofitted(rpe: object) -> nn.Module:
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=2, embed_dim=48, num_heads=2, num_classes=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # some encodings change the attention from the start
        return vit_rpe.add_rpe(model, rpe)


HOMES = {
    "image model": lambda rpe: _model(rpe, class_token=True, pos_embed="learned"),
    "shared": lambda rpe: _model(rpe, rpe_shared=True),
    "sequence model": lambda rpe: timm.create_model(
        "rpe_sequence_nano", rpe=rpe, vocab_size=5, length=12, embed_dim=48, depth=2, num_heads=2
    ),
    "retrofitted": _retrofitted,
    "in one's own model": InOnesOwnModel,
}
AROUND = {
    "nothing": lambda model: model,
    "a wrapper": lambda model: nn.ModuleDict({"encoder": model}),
    "wrappers in a wrapper": lambda model: Wrapper(nn.Sequential(nn.ModuleDict({"a": model}), nn.Linear(4, 4))),
}


REFUSALS = r"is defined for 2 axes|has no parameters that layers could share|adds nothing"
"""Why an encoding has no place in some homes; anything else is a fault."""


@pytest.mark.parametrize(
    "around",
    ["wrappers in a wrapper", *(pytest.param(name, marks=pytest.mark.exhaustive) for name in list(AROUND)[:2])],
)
@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize("rpe", [*vit_rpe.list_encodings(), ["bias", "alibi"]], ids=str)
def test_positions_are_spared_wherever_the_model_is(rpe: object, home: str, around: str) -> None:
    try:
        model = HOMES[home](rpe)
    except ValueError as refusal:
        if not re.search(REFUSALS, str(refusal)):
            raise
        pytest.skip(reason=str(refusal))
    whole = AROUND[around](model)
    groups = parameter_groups(whole, weight_decay=0.3)
    decay = {id(parameter): group["weight_decay"] for group in groups for parameter in group["params"]}
    assert set(decay) == {id(parameter) for parameter in whole.parameters() if parameter.requires_grad}
    for path, module in whole.named_modules():
        own = {
            id(parameter): name
            for name, parameter in module.named_parameters()
            if isinstance(module, (vit_rpe.PositionEncoding, vit_rpe.LearnedEmbedding)) and parameter.requires_grad
        }
        spared = module.no_weight_decay() if own else set()
        for number, name in own.items():
            whole_matrix = name not in spared and name.endswith("weight")
            assert decay[number] == (0.3 if whole_matrix else 0.0), f"{path}.{name}"
    for name, parameter in whole.named_parameters():
        if name.endswith(("cls_token", "pos_embed", "embed.weight")) and "token_embed" not in name:
            assert decay[id(parameter)] == (0.0 if "patch" not in name else 0.3), name


def test_layers_of_a_wrapped_model_learn_as_without_the_wrapper() -> None:
    model = _model()
    whole = nn.ModuleDict({"encoder": model, "probe": nn.Linear(3, 3)})
    for where, prefix in ((model, ""), (whole, "encoder.")):
        groups = parameter_groups(where, weight_decay=0.1, layer_decay=0.5)
        scale = {id(parameter): group["lr_scale"] for group in groups for parameter in group["params"]}
        named = dict(where.named_parameters())
        assert [scale[id(named[f"{prefix}blocks.{i}.attn.rpe.table"])] for i in range(3)] == [0.125, 0.25, 0.5]
    assert scale[id(named["probe.weight"])] == 1.0
    with pytest.raises(ValueError, match=r"one part that knows its layers .* has 2"):
        parameter_groups(nn.ModuleList([_model(), _model()]), weight_decay=0.1, layer_decay=0.5)
    with pytest.raises(ValueError, match="has 0"):
        parameter_groups(nn.Linear(2, 2), weight_decay=0.1, layer_decay=0.5)


@pytest.mark.parametrize("layer_decay", [None, 0.5])
def test_positions_learn_at_their_own_rate(layer_decay: float | None) -> None:
    model = _model("cpb")
    plain, own = (
        {
            id(parameter): group.get("lr_scale", 1.0)
            for group in parameter_groups(model, weight_decay=0.1, layer_decay=layer_decay, position_lr=factor)
            for parameter in group["params"]
        }
        for factor in (1.0, 5.0)
    )
    for name, parameter in model.named_parameters():
        assert own[id(parameter)] == plain[id(parameter)] * (5 if ".rpe." in name else 1), name
    config = TrainConfig(lr=0.1, position_lr=5.0, layer_decay=layer_decay, schedule="none")
    optimizer = make_optimizer(model, config)
    Schedule(config).apply(optimizer, 0.0)
    rates = {id(parameter): group["lr"] for group in optimizer.param_groups for parameter in group["params"]}
    assert rates == {number: pytest.approx(0.1 * scale) for number, scale in own.items()}


@pytest.mark.parametrize("rpe", ["none", "alibi"])
def test_a_rate_for_positions_that_learn_nothing_is_refused(rpe: str) -> None:
    with pytest.raises(ValueError, match="position_lr=2 would change nothing"):
        parameter_groups(_model(rpe), weight_decay=0.1, position_lr=2.0)
