"""The suite for a GPU, on the CPU: every kernel that can is a candidate, and what auto misses is named."""

from __future__ import annotations

import pytest
import torch

from vit_rpe.attention import KERNELS
from vit_rpe.benchmark import gpu_suite as suite
from vit_rpe.benchmark.candidates.jobs import Job, build
from vit_rpe.benchmark.measuring.compare import Effort, Result
from vit_rpe.benchmark.measuring.intervals import Interval
from vit_rpe.cli import main

EFFORT = Effort(seconds=0.0, rounds=2)


def test_without_a_gpu_only_a_quick_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["benchmark", "--suite", "gpu"]) == 1
    assert "--suite gpu needs a GPU, and torch sees none; with --quick it runs on the CPU" in capsys.readouterr().err
    assert main(["benchmark", "--minutes", "3"]) == 1
    assert "--minutes means nothing without --suite gpu" in capsys.readouterr().err


def test_every_kernel_that_can_is_a_candidate() -> None:
    settings = list(suite._settings(suite.FULL))
    assert len(settings) == 16
    assert len({words for words, _ in settings}) == 16
    jobs = dict(suite._jobs(suite.TINY, suite.FULL))
    named = {name.partition("(")[2].removesuffix(")") for name in jobs if "(" in name}
    assert named == {"auto", *KERNELS}
    assert {"none", "timm relpos table", "timm rope axial", "bias (flex)", "decomposed (fold)"} <= set(jobs)
    assert list(jobs)[:2] == ["none", "bias (auto)"]
    for name in ("bias (sdpa)", "timm relpos table"):
        model, images = build(jobs[name])
        assert images.dtype == torch.bfloat16
        with torch.no_grad():
            assert model(images).shape == (1, 1000)


def test_a_candidate_that_fails_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def ready(job: Job) -> suite.Ready | str:
        return "OutOfMemoryError: too large" if job.attn_impl == "eager" else suite.Ready(lambda: None, None)

    monkeypatch.setattr(suite, "_made_ready", ready)
    rows = list(suite.gpu_suite(EFFORT, quick=True, threads=None, say=said.append))
    assert not any("(eager)" in row.name for row in rows)
    assert said.count("bias (eager) is left out: OutOfMemoryError: too large") == 4
    assert {row.name for row in rows if row.setting.endswith("compiled")} == {"none", "bias (auto)"}
    assert all(row.reference == "none" and row.time is not None for row in rows)


def test_kernels_say_why_they_are_left_out() -> None:
    training = suite.TINY._replace(subject="bias", img_size=32, attn_impl="flex", training=True)
    assert "torch has no backward of FlexAttention on the CPU" in str(suite._made_ready(training))


def test_time_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    clock = iter(range(0, 10000, 40))
    monkeypatch.setattr(suite.time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(suite, "_made_ready", lambda job: suite.Ready(lambda: None, None))
    monkeypatch.setattr(suite, "interleave", lambda work, **_: {name: suite_timing() for name in work})
    said: list[str] = []
    rows = list(suite.gpu_suite(EFFORT, quick=False, threads=None, say=said.append, minutes=6))
    assert rows
    assert said[-1].startswith("no time left for: ")
    assert any(text.startswith("no time left for: bias (windows)") or "decomposed" in text for text in said)


def suite_timing():
    from vit_rpe.benchmark import Timing

    return Timing([1.0, 1.0])


def test_where_auto_errs() -> None:
    def row(name: str, seconds: float) -> Result:
        return Result("s", name, "none", seconds, Interval(seconds, seconds - 0.01, seconds + 0.01))

    rows = [row("none", 1), row("bias (auto)", 1.5), row("bias (sdpa)", 1.5), row("bias (flex)", 1.2)]
    rows += [row("rope (auto)", 1.21), row("rope (sdpa)", 1.2), row("timm rope axial", 1.1)]
    lines = suite.choices(rows).splitlines()[2:]
    assert lines == ["| s | bias | `flex` | 1.25x | errs |", "| s | rope | `sdpa` | 1.01x |  |"]
