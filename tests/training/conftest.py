"""A run small enough to be repeated many times: three layers of width 24 on a tenth of the digits."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.state import AcceleratorState, GradientState, PartialState

from vit_rpe.training.config.parse import parse_config
from vit_rpe.training.run import RunResult, train

TINY = [
    "--model.args={in_chans: 1, depth: 3, embed_dim: 24, num_heads: 3, drop_path_rate: 0.2, proj_drop_rate: 0.1}",
    "--data.fraction=0.12",
    "--data.mixup=0",
    "--data.batch_size=32",
    "--data.eval_batch_size=64",
    "--train.lr=0.003",
    "--train.warmup_epochs=1",
    "--train.device=cpu",
    "--pictures=false",
]


@pytest.fixture(autouse=True)
def _fresh_accelerate() -> Iterator[None]:
    """Accelerate keeps precision and processes in singletons; every test starts without them."""
    forget_processes()
    yield
    forget_processes()


def forget_processes() -> None:
    """Let the next run find out anew how many processes there are, and of what precision it is."""
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[..., RunResult]:
    """Train a tiny model: ``tiny("name", "--train.epochs=2")`` fills ``tmp_path / name``, all but the pictures."""

    def run(name: str, *words: str) -> RunResult:
        return train(parse_config([*TINY, f"--output={tmp_path / name}", *words]))

    return run


def state_of(folder: Path) -> dict[str, Any]:
    """The training state in ``last/``."""
    return torch.load(folder / "last" / "training_state.pt", weights_only=True)


def assert_same_state(first: Path, second: Path) -> None:
    """Two runs ended bit-equal: weights, averaged weights, optimiser, counters and everything in the rows but time."""
    one, two = state_of(first), state_of(second)
    for key in ("model", "ema"):
        assert (one[key] is None) == (two[key] is None)
        for name, value in (one[key] or {}).items():
            assert torch.equal(value, two[key][name]), f"{key}.{name} differs"
    torch.testing.assert_close(one["optimizer"], two["optimizer"], rtol=0, atol=0)
    for counters in (one["counters"], two["counters"]):
        for row in counters["rows"]:
            del row["images_per_second"], row["seconds"]
    assert one["counters"] == two["counters"]
    torch.testing.assert_close(one["processes"][0]["random"]["torch"], two["processes"][0]["random"]["torch"])


def in_child(work: Callable[[], object]) -> int:
    """Run ``work`` in a forked child that ends without cleaning up; returns its status, negative for a signal."""
    child = os.fork()
    if child == 0:
        status = 70
        try:
            status = int(work() or 0)  # type: ignore[call-overload]
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    _, ended = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(ended)
