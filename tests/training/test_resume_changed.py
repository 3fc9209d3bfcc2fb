"""A run that goes on with another batch, number of processes, or length: the schedule follows the share that is done.

Nothing is computed here: an update only notes the rate it would have used, and an evaluation is made up.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.training.conftest import TINY, state_of
from vit_rpe.training import loop
from vit_rpe.training.checkpoint import state as state_module
from vit_rpe.training.checkpoint.run_folder import read_metrics
from vit_rpe.training.config.check import SCHEDULES
from vit_rpe.training.config.parse import parse_config
from vit_rpe.training.metrics import Evaluation
from vit_rpe.training.run import train
from vit_rpe.training.schedule import Schedule

Used = list[tuple[float, float]]
"""(epochs done, rate used) of every update."""
CHANGES = {
    "twice the batch": ("--data.batch_size=64",),
    "half the batch": ("--data.batch_size=16",),
    "twice the accumulation": ("--train.accumulate=2",),
    "more epochs": ("--train.epochs=12",),
}


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Used:
    noted: Used = []

    def update(session, group, *rest):
        noted.append((session.epochs_done, session.optimizer.param_groups[0]["lr"]))
        session.meters.update(torch.zeros(()), torch.zeros((), dtype=torch.long), 1)
        return torch.zeros(())

    monkeypatch.setattr(loop, "_update", update)
    monkeypatch.setattr(loop, "evaluate_session", lambda session, **more: Evaluation(1, 1.0, 0.5, 0.5, 0.0))
    return noted


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Train to a place (epoch, update inside it) and stop there."""

    def go(*words: str, until: tuple[int, int] | None = None) -> None:
        class Stop(Exception):
            pass

        config = parse_config([*TINY, f"--output={tmp_path / 'run'}", *words])
        update = loop._update

        def stopping(session, group, *rest):
            counters = session.counters
            if until is not None and (counters.epoch, counters.step) >= until:
                loop.save_last(session)
                raise Stop
            return update(session, group, *rest)

        monkeypatch.setattr(loop, "_update", stopping)
        try:
            train(config)
        except Stop:
            pass
        finally:
            monkeypatch.setattr(loop, "_update", update)

    return go


BASE = ("--train.epochs=8", "--train.lr=1e-3", "--train.min_lr=1e-5")
CELLS = [
    pytest.param(
        name,
        warmup,
        change,
        until,
        marks=() if (name, warmup, until) == ("cosine", 1.5, (4, 2)) else pytest.mark.exhaustive,
    )
    for name in SCHEDULES
    for warmup in (0.0, 1.5)
    for change in CHANGES
    for until in ((4, 0), (4, 2))
    if (name, warmup) not in (("rsqrt", 0.0), ("none", 1.5))  # one needs a warm-up, one has none
]


@pytest.mark.parametrize(("schedule", "warmup", "change", "until"), CELLS)
def test_the_schedule_follows_the_share_done(used, run, tmp_path, schedule, warmup, change, until, capsys) -> None:
    options = (*BASE, f"--train.schedule={schedule}", f"--train.warmup_epochs={warmup}")
    run(*options, until=until)
    used.clear()
    run(*options, *CHANGES[change], "--resume=auto")
    config = parse_config([*TINY, *options, *CHANGES[change]]).train
    wanted = Schedule(config)
    assert used[0][0] == pytest.approx(until[0] + until[1] / 5, abs=0.5)
    assert used[0][0] <= until[0] + until[1] / 5
    assert [rate for _, rate in used] == pytest.approx([wanted.rate(done) for done, _ in used], rel=1e-9)
    assert used[-1][0] >= config.epochs - 0.5  # the end of the schedule is reached, half an epoch being one update
    firsts = {done + 1: rate for done, rate in used if done == int(done)}
    rows = {row["epoch"]: row["lr"] for row in read_metrics(tmp_path / "run")}
    assert list(rows) == list(range(1, config.epochs + 1))
    assert {epoch: rows[epoch] for epoch in firsts} == pytest.approx(firsts, rel=1e-9)
    said = capsys.readouterr().out
    if "epochs" not in change:
        assert "the schedule goes by the share of the training done" in said
        assert "goes on at" not in said


def test_the_published_numbers(used, run, tmp_path) -> None:
    """8 epochs, cosine 1e-3 to 1e-5, stopped after 4: the fifth starts at 5.05e-4 with any batch size."""
    run(*BASE, "--train.warmup_epochs=0", until=(4, 0))
    used.clear()
    run(*BASE, "--train.warmup_epochs=0", "--data.batch_size=64", "--resume=auto")
    assert used[0] == (4.0, pytest.approx(5.05e-4))
    assert read_metrics(tmp_path / "run")[4]["lr"] == pytest.approx(5.05e-4)


def test_other_processes_are_said_and_counted(used, run, tmp_path, monkeypatch, capsys) -> None:
    """Two processes of before are simulated: their state has two entries and half as many updates an epoch."""
    run(*BASE, until=(4, 2))
    file = tmp_path / "run" / "last" / "training_state.pt"
    state = state_of(tmp_path / "run")
    state["processes"] *= 2
    state["updates_per_epoch"], state["counters"]["step"] = 2, 1
    torch.save(state, file)
    used.clear()
    capsys.readouterr()
    run(*BASE, "--resume=auto")
    said = " ".join(capsys.readouterr().out.split())
    assert "2 processes made the checkpoint, now 1 process train" in said
    assert "an update was made from 64 samples and is now from 32" in said
    assert used[0][0] == pytest.approx(4 + 2 / 5)


def test_a_stretched_schedule_names_both_rates(used, run, capsys) -> None:
    run(*BASE, "--train.warmup_epochs=0", until=(4, 0))
    run(*BASE, "--train.warmup_epochs=0", "--train.epochs=16", "--resume=auto")
    said = " ".join(capsys.readouterr().out.split())
    assert "train.epochs was 8 and is 16: the cosine schedule is stretched" in said
    assert "goes on at 0.000855, where the run before would have had 0.000505" in said


def test_rate_decay_and_betas_are_those_of_the_command(used, run, monkeypatch) -> None:
    """What a warning calls changed is changed: the optimiser's state does not bring the old values back."""
    groups = []
    run(*BASE, "--train.weight_decay=0.05", until=(2, 0))
    noting = loop._update
    monkeypatch.setattr(loop, "_update", lambda *args: groups.append(args[0].optimizer.param_groups) or noting(*args))
    words = ("--train.weight_decay=0.3", "--train.betas=[0.8, 0.9]", "--train.layer_decay=0.5", "--resume=auto")
    run(*BASE, *words)
    assert {group["weight_decay"] for group in groups[0]} == {0.0, 0.3}
    assert {group["betas"] for group in groups[0]} == {(0.8, 0.9)}
    assert len({group["lr"] for group in groups[0]}) > 2


def test_an_optimiser_keeps_its_moments_when_groups_are_cut_anew(tiny, tmp_path) -> None:
    tiny("run", "--train.epochs=1")
    before = state_of(tmp_path / "run")
    tiny(
        "run",
        "--train.epochs=2",
        "--train.lr=1e-30",
        "--train.min_lr=0",
        "--train.warmup_lr=0",
        "--train.layer_decay=0.5",
        "--resume=auto",
    )
    after = state_of(tmp_path / "run")
    moments = {}
    for name, state in (("before", before), ("after", after)):
        names = [name for group in state["parameter_names"] for name in group]
        moments[name] = {names[number]: own["exp_avg"].shape for number, own in state["optimizer"]["state"].items()}
    assert moments["before"] == moments["after"]
    assert after["parameter_names"] != before["parameter_names"]


def test_a_state_without_the_number_of_updates_is_refused_inside_an_epoch(used, run, tmp_path) -> None:
    run(*BASE, until=(4, 2))
    state = state_of(tmp_path / "run")
    del state["updates_per_epoch"], state["parameter_names"]
    torch.save(state, tmp_path / "run" / "last" / state_module.STATE_FILE)
    with pytest.raises(ValueError, match="use the batch size and the number of processes it was made with"):
        run(*BASE, "--data.batch_size=64", "--resume=auto")
    used.clear()
    run(*BASE, "--resume=auto")
    assert used[0][0] == pytest.approx(4.4)
