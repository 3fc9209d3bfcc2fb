"""Two processes on the CPU count every sample once and end where one process ends."""

from __future__ import annotations

import os
import socket
import sys
import traceback
from pathlib import Path

import pytest
import torch

from tests.training.conftest import TINY, forget_processes, state_of
from vit_rpe.training.checkpoint.checkpoint import load_checkpoint

OPTIONS = ("--train.epochs=2", "--train.optimizer=sgd", "--train.lr=0.1", "--train.ema_decay=0.9")
PLAIN = "--model.args={in_chans: 1, depth: 2, embed_dim: 24, num_heads: 3}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def train_together(words: list[str], errors: Path) -> list[int]:
    """Run the command in two forked processes, as torchrun would start them; returns their exit statuses."""
    port, children = _free_port(), []
    for rank in range(2):
        child = os.fork()
        if child == 0:
            status = 70
            try:
                place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
                forget_processes()
                os.environ.update(place, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1")
                sys.stderr = errors.open("a", buffering=1)
                from vit_rpe.cli import main

                status = main(["train", *words])
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch was built without distributed")
def test_two_processes_are_one_with_twice_the_batch(tiny, tmp_path: Path) -> None:
    words = [
        *TINY,
        PLAIN,
        *OPTIONS,
        f"--output={tmp_path / 'two'}",
        "--data.batch_size=16",
        "--data.eval_batch_size=50",
        # what torchrun's users have; with an accelerator two processes would want two of them
        f"--train.device={'cpu' if torch.accelerator.is_available() else 'auto'}",
    ]
    statuses = train_together(words, tmp_path / "errors")
    assert statuses == [0, 0], (tmp_path / "errors").read_text()
    result = tiny("one", PLAIN, *OPTIONS, "--data.batch_size=32")
    one, two = state_of(tmp_path / "one"), state_of(tmp_path / "two")
    for name, value in one["model"].items():
        torch.testing.assert_close(two["model"][name], value, rtol=1e-4, atol=1e-5)
    rows = one["counters"]["rows"], two["counters"]["rows"]
    for mine, theirs in zip(*rows, strict=True):
        assert theirs["test_accuracy"] == pytest.approx(mine["test_accuracy"], abs=1e-6)
        assert theirs["train_accuracy"] == pytest.approx(mine["train_accuracy"], abs=1e-6)
        assert theirs["test_loss"] == pytest.approx(mine["test_loss"], rel=1e-4)
    assert rows[1][-1]["test_accuracy"] == pytest.approx(result.evaluation.top1)
    assert result.evaluation.count == 359
    assert len(two["processes"]) == 2
    log = (tmp_path / "two" / "log.txt").read_text()
    assert "batch   32 = 16 samples x 1 per update x 2 process(es)" in log
    assert load_checkpoint(tmp_path / "two" / "last").info.epoch == 2
