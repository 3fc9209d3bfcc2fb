"""Every family with its own position and with others trains two steps; stopped between them, it goes on bit for bit."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from tests.exchange.test_adapted import TAKEN
from tests.exchange.test_replace import replaced, step
from vit_rpe.models.families.samples.of_timm import OTHERS, build, image, sample
from vit_rpe.training.optim import parameter_groups

SPECS = ("keep", "bias", "rope", "cpb")
SAMPLED = {("levit", "bias"), ("efficientvit", "cpb"), ("efficientformer", "keep"), ("tiny_vit", "rope")}
"""What ``tests/training/test_windowed.py`` does not train by name."""


def fresh(case: str, rpe: str) -> tuple[Any, torch.optim.Optimizer, torch.Tensor]:
    torch.manual_seed(0)
    theirs, x = sample(case) if case in OTHERS else (build(case), image(case))
    model = replaced(theirs, rpe).train()
    groups = parameter_groups(model, weight_decay=0.05, position_lr=3.0 if learned(model) else 1.0)
    return model, torch.optim.AdamW(groups, lr=1e-3), x


def learned(model: Any) -> list[str]:
    return [name for name, value in model.named_parameters() if value.requires_grad and ".rpe." in name]


@pytest.mark.parametrize(
    ("case", "rpe"),
    [
        pytest.param(case, rpe, marks=() if (case, rpe) in SAMPLED else pytest.mark.exhaustive)
        for case in TAKEN
        for rpe in SPECS
        if (case, rpe) != ("hiera", "keep")  # it has no position to keep
    ],
)
def test_two_steps(case: str, rpe: str) -> None:
    model, optimizer, x = fresh(case, rpe)
    start = copy.deepcopy(model.state_dict())
    torch.manual_seed(1)
    step(model, optimizer, x)
    kept = copy.deepcopy((model.state_dict(), optimizer.state_dict(), torch.get_rng_state()))
    step(model, optimizer, x)
    ends = model.state_dict()
    positions = [name for name in ends if ".rpe." in name and ends[name].is_floating_point()]
    assert all(torch.isfinite(ends[name]).all() for name in positions)
    if learned(model):
        assert any(not torch.equal(start[name], ends[name]) for name in positions)

    again, its_optimizer, _ = fresh(case, rpe)
    again.load_state_dict(kept[0])
    its_optimizer.load_state_dict(kept[1])
    torch.set_rng_state(kept[2])
    step(again, its_optimizer, x)
    for name, value in again.state_dict().items():
        torch.testing.assert_close(value, ends[name], rtol=0, atol=0, equal_nan=True, msg=name)
