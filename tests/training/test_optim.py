"""Parameter groups and the learning rate."""

from __future__ import annotations

import pytest
import timm
import torch
from torch import nn

import vit_rpe
from vit_rpe.training.config.schema import TrainConfig
from vit_rpe.training.optim import make_optimizer, make_schedule, parameter_groups, unwrapped


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
    schedule = make_schedule(optimizer, config, updates_per_epoch=5)
    schedule.step_update(10)
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


def test_rates_per_update_pass_through_those_per_epoch() -> None:
    """timm's cosine with warm-up inside its length, base 1e-3, 10 epochs: the values at the epochs' first updates."""
    config = TrainConfig(epochs=10, lr=1e-3, warmup_epochs=2, warmup_lr=1e-6, min_lr=0)
    optimizer = make_optimizer(_model(), config)
    schedule = make_schedule(optimizer, config, updates_per_epoch=7)
    rates = []
    for update in range(70):
        schedule.step_update(update)
        rates.append(optimizer.param_groups[0]["lr"])
    expected = [1e-6, 5.005e-4, 9.045085e-4, 7.938926e-4, 6.545085e-4, 5e-4]
    assert rates[:42:7] == pytest.approx(expected, rel=1e-6)
    assert rates[7] < rates[8] < rates[13]


def test_no_schedule_keeps_the_rate() -> None:
    config = TrainConfig(schedule="none", lr=0.02)
    optimizer = make_optimizer(_model(), config)
    assert make_schedule(optimizer, config, updates_per_epoch=3) is None
    assert {group["lr"] for group in optimizer.param_groups} == {0.02}
