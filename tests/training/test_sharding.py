"""Weights that FSDP2 spreads over two processes: the run, its checkpoint and its resumption.

Accelerate shards on accelerators only; here its ``prepare`` is replaced by the same torch function on the CPU.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch import nn

from tests.training.conftest import TINY, state_of
from tests.training.test_processes import PLAIN, train_together

WORDS = ("--train.lr=0.01", "--data.batch_size=16", "--data.eval_batch_size=36", "--train.epochs=3")


def shard(self: Accelerator, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, Any]:
    """What Accelerate does for FSDP2: shard every block and the rest, and point the optimiser at the new parameters."""
    from accelerate.optimizer import AcceleratedOptimizer
    from torch.distributed.fsdp import fully_shard

    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    sharded = dict(model.named_parameters())
    for group in optimizer.param_groups:
        group["params"] = [sharded[names[id(parameter)]] for parameter in group["params"]]
    return model, AcceleratedOptimizer(optimizer)


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch was built without distributed")
def test_a_sharded_run_ends_where_a_plain_one_does(tiny, tmp_path: Path, monkeypatch) -> None:
    tiny("plain", PLAIN, *WORDS, "--data.batch_size=32")
    monkeypatch.setattr(Accelerator, "prepare", shard)
    monkeypatch.setattr(Accelerator, "is_fsdp2", property(lambda self: True))
    words = [*TINY, PLAIN, *WORDS, f"--output={tmp_path / 'sharded'}"]
    errors = tmp_path / "errors"
    assert train_together(words, errors) == [0, 0], errors.read_text()
    plain, sharded = state_of(tmp_path / "plain"), state_of(tmp_path / "sharded")
    for name, value in plain["model"].items():
        torch.testing.assert_close(sharded["model"][name], value, rtol=1e-3, atol=1e-4)
    row, other = plain["counters"]["rows"][-1], sharded["counters"]["rows"][-1]
    assert other["test_accuracy"] == pytest.approx(row["test_accuracy"], abs=0.01)


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch was built without distributed")
def test_a_sharded_run_resumes(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(Accelerator, "prepare", shard)
    monkeypatch.setattr(Accelerator, "is_fsdp2", property(lambda self: True))
    words, errors = [*TINY, PLAIN, *WORDS, "--train.schedule=constant"], tmp_path / "errors"
    runs = [("straight", 2, []), ("cut", 1, []), ("cut", 2, ["--resume=auto"])]
    for name, epochs, more in runs:
        done = train_together([*words, f"--train.epochs={epochs}", f"--output={tmp_path / name}", *more], errors)
        assert done == [0, 0], errors.read_text()
    straight, cut = state_of(tmp_path / "straight"), state_of(tmp_path / "cut")
    torch.testing.assert_close(cut["model"], straight["model"], rtol=0, atol=0)
    torch.testing.assert_close(cut["optimizer"]["state"], straight["optimizer"]["state"], rtol=0, atol=0)
