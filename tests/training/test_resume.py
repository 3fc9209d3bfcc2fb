"""Nothing is lost: a run that was cut anywhere and resumed ends with the same bits as one that was not."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch

from tests.training.conftest import TINY, assert_same_state, in_child, state_of
from vit_rpe.commands import train as train_command
from vit_rpe.training.checkpoint import files
from vit_rpe.training.checkpoint.files import newest
from vit_rpe.training.checkpoint.run_folder import read_metrics

OPTIONS = (
    "--train.epochs=3",
    "--train.ema_decay=0.97",
    "--train.clip_grad=1.5",
    "--train.accumulate=2",
    "--data.augment=light",
    "--data.cutmix=0.5",
    "--train.checkpoint_every_steps=1",
    "--train.keep=2",
)


@pytest.fixture
def unbroken(tiny, tmp_path: Path) -> Path:
    tiny("unbroken", *OPTIONS)
    return tmp_path / "unbroken"


def _killed_at(number: int, what: str, output: Path) -> int:
    """Train in a child that kills itself at the ``number``-th flush of a file or rename of a folder."""
    count = 0

    def counting(before):
        def call(*args):
            nonlocal count
            count += 1
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return before(*args)

        return call

    def work() -> int:
        if what == "flush":
            files._flush = counting(files._flush)  # type: ignore[assignment]
        else:
            Path.rename = counting(Path.rename)  # type: ignore[method-assign]
        return train_command.main([*TINY, *OPTIONS, f"--output={output}"])

    return in_child(work)


@pytest.mark.parametrize(
    ("number", "what"), [(9, "flush"), (16, "rename"), (17, "rename"), (31, "rename"), (50, "flush")]
)
def test_killed_while_a_checkpoint_is_written(unbroken: Path, tiny, tmp_path: Path, number: int, what: str) -> None:
    assert _killed_at(number, what, tmp_path / "run") == -signal.SIGKILL
    tiny("run", *OPTIONS, "--resume=auto")
    assert_same_state(unbroken, tmp_path / "run")
    names = [sorted(path.name for path in folder.iterdir()) for folder in (unbroken, tmp_path / "run")]
    assert names[0] == names[1]


@pytest.mark.parametrize("update", [1, 4, 7])
def test_killed_between_updates(unbroken: Path, tiny, tmp_path: Path, monkeypatch, update: int) -> None:
    from vit_rpe.training import loop

    update_once = loop._update

    def dying(session, group, *rest):
        if session.counters.updates == update:
            os.kill(os.getpid(), signal.SIGKILL)
        return update_once(session, group, *rest)

    def work() -> int:
        loop._update = dying  # type: ignore[assignment]
        return train_command.main([*TINY, *OPTIONS, f"--output={tmp_path / 'run'}"])

    assert in_child(work) == -signal.SIGKILL
    tiny("run", *OPTIONS, "--resume=auto")
    assert_same_state(unbroken, tmp_path / "run")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_stops(unbroken: Path, tiny, tmp_path: Path, number: signal.Signals) -> None:
    from vit_rpe.training import loop

    update_once = loop._update

    def interrupted(session, group, *rest):
        if session.counters.updates == 4:
            os.kill(os.getpid(), number)
        return update_once(session, group, *rest)

    def work() -> int:
        loop._update = interrupted  # type: ignore[assignment]
        words = [word for word in OPTIONS if "checkpoint_every" not in word]
        return train_command.main([*TINY, *words, f"--output={tmp_path / 'run'}"])

    assert in_child(work) == 128 + number
    counters = state_of(tmp_path / "run")["counters"]
    assert (counters["epoch"], counters["step"], counters["updates"]) == (1, 1, 4)
    tiny("run", *OPTIONS, "--resume=auto")
    assert_same_state(unbroken, tmp_path / "run")


def test_four_epochs_and_six_more_are_ten(tiny, tmp_path: Path, monkeypatch) -> None:
    """Rates of cosine with warm-up 2 from 1e-6 at base 1e-3 over 10 epochs, before and after the cut."""
    options = ("--train.epochs=10", "--train.lr=1e-3", "--train.warmup_epochs=2", "--train.min_lr=0")
    options += ("--train.ema_decay=0.9999", "--data.fraction=0.06")
    tiny("straight", *options)

    from vit_rpe.training import loop

    finish = loop._finish_epoch

    def stopping(session, *rest):
        finish(session, *rest)
        if session.counters.epoch == 4:
            raise InterruptedError

    monkeypatch.setattr(loop, "_finish_epoch", stopping)
    with pytest.raises(InterruptedError):
        tiny("cut", *options)
    monkeypatch.setattr(loop, "_finish_epoch", finish)
    tiny("cut", *options, "--resume=auto")
    assert_same_state(tmp_path / "straight", tmp_path / "cut")
    expected = [1e-6, 5.005e-4, 9.0451e-4, 7.9389e-4, 6.5451e-4, 5e-4, 3.4549e-4, 2.0611e-4, 9.549e-5, 2.447e-5]
    for name in ("straight", "cut"):
        rows = read_metrics(tmp_path / name)
        assert [row["epoch"] for row in rows] == list(range(1, 11))
        torch.testing.assert_close([row["lr"] for row in rows], expected, rtol=2e-4, atol=0)


def test_more_epochs_warn_and_fewer_stop(tiny, tmp_path: Path, capsys) -> None:
    tiny("run", "--train.epochs=2")
    with pytest.raises(ValueError, match=r"train\.epochs is 1, but the checkpoint has 2 epochs behind it already"):
        tiny("run", "--train.epochs=1", "--resume=auto")
    capsys.readouterr()
    tiny("run", "--train.epochs=3", "--resume=auto", "--train.lr=0.002")
    out = capsys.readouterr().out
    assert "warning: train.epochs was 2 and is 3: the cosine schedule is stretched" in out
    assert "warning: train.lr was 0.003, is 0.002" in out
    assert len(read_metrics(tmp_path / "run")) == 3


def test_a_finished_run_only_reports(tiny, tmp_path: Path) -> None:
    first = tiny("run", "--train.epochs=1")
    before = (tmp_path / "run" / "last" / "training_state.pt").stat().st_mtime_ns
    again = tiny("run", "--train.epochs=1", "--resume=auto")
    assert again.evaluation.top1 == first.evaluation.top1
    assert (tmp_path / "run" / "last" / "training_state.pt").stat().st_mtime_ns == before


def test_resume_takes_the_config_of_the_run(tiny, tmp_path: Path) -> None:
    tiny("run", "--train.epochs=1")
    from vit_rpe.training.config.parse import parse_config

    for words in (
        ["--resume", "auto", "--output", str(tmp_path / "run")],
        ["--resume", str(tmp_path / "run" / "last")],
    ):
        config = parse_config(words)
        assert config.model.args["depth"] == 3
        assert config.output == str(tmp_path / "run")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda state: state.write_bytes(state.read_bytes()[:1000]), "cannot read"),
        (lambda state: torch.save({"model": {}}, state), "is no training state: it lacks config, counters"),
        (lambda state: state.unlink(), "nothing to resume at"),
    ],
)
def test_a_damaged_state(tiny, tmp_path: Path, damage, message: str) -> None:
    tiny("run", "--train.epochs=1")
    damage(tmp_path / "run" / "last" / "training_state.pt")
    with pytest.raises(ValueError, match=message):
        tiny("run", "--train.epochs=2", "--resume=auto")


def test_a_full_disk_leaves_the_last_good_checkpoint(tiny, tmp_path: Path) -> None:
    """A limit on the size of files stands in for the full disk: writing fails half-way."""
    import resource

    tiny("run", "--train.epochs=1")
    size = (tmp_path / "run" / "last" / "training_state.pt").stat().st_size

    def work() -> int:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, size))
        from vit_rpe.cli import main

        with open(tmp_path / "errors", "w") as errors:
            os.dup2(errors.fileno(), 2)
            import sys

            sys.stderr = errors
            return main(["train", *TINY, "--train.epochs=2", "--resume=auto", f"--output={tmp_path / 'run'}"])

    assert in_child(work) == 1
    error = (tmp_path / "errors").read_text()
    assert error.startswith("error: cannot write the checkpoint")
    assert "untouched" in error
    assert error.count("\n") == 1
    assert newest(tmp_path / "run" / "last") == tmp_path / "run" / "last"
    assert state_of(tmp_path / "run")["counters"]["epoch"] == 1
    tiny("run", "--train.epochs=2", "--resume=auto")
    assert state_of(tmp_path / "run")["counters"]["epoch"] == 2


def test_a_run_that_was_moved_goes_on_where_it_lies(tiny, tmp_path: Path) -> None:
    from vit_rpe.training.config.parse import parse_config
    from vit_rpe.training.run import train

    tiny("run", "--train.epochs=1")
    (tmp_path / "run").rename(tmp_path / "moved")
    train(parse_config(["--resume", str(tmp_path / "moved"), "--train.epochs=2"]))
    assert not (tmp_path / "run").exists()
    assert len(read_metrics(tmp_path / "moved")) == 2


def test_the_best_goes_along_into_another_folder(tiny, tmp_path: Path) -> None:
    tiny("run", "--train.epochs=1")
    tiny(
        "other",
        "--train.epochs=2",
        "--train.lr=1e-30",
        "--train.min_lr=0",
        "--train.warmup_lr=0",
        f"--resume={tmp_path / 'run'}",
    )
    assert (tmp_path / "other" / "best" / "model.safetensors").is_file()
    assert len(read_metrics(tmp_path / "other")) == 2


def test_a_run_that_replaces_another_keeps_nothing_of_it(tiny, tmp_path: Path, monkeypatch) -> None:
    """Killed before its first epoch ends, it must not be resumed from what the old one had left."""
    from vit_rpe.training import loop

    tiny("run", "--train.epochs=1")
    monkeypatch.setattr(loop, "_update", lambda *args: (_ for _ in ()).throw(InterruptedError))
    with pytest.raises(InterruptedError):
        tiny("run", "--train.epochs=2", "--overwrite=true")
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert left == {"config.yaml", "data.json", "versions.json", "log.txt"}


def test_a_last_batch_that_cannot_be_mixed_is_refused_before_training(tiny) -> None:
    with pytest.raises(ValueError, match="a last batch of 13 images, which cannot be mixed in pairs"):
        tiny("run", "--data.drop_last=false", "--data.mixup=0.2")
