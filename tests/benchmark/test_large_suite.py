"""The suite of large grids: every row is against the same without position, or timm's Segment Anything."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from vit_rpe.benchmark import large_suite as suite
from vit_rpe.benchmark.candidates.jobs import Job, build
from vit_rpe.benchmark.measuring.compare import Effort, Result
from vit_rpe.benchmark.measuring.neighbour import neighbour


def test_every_row_has_its_reference_and_target(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, dict[str, Job]] = {}

    def times(jobs: dict[str, Job], references: dict[str, str], setting: str, effort: Effort) -> list[Result]:
        asked[setting] = jobs
        assert set(references.values()) <= set(jobs)
        return [Result(setting, name, references.get(name, ""), 1.0, None) for name in jobs]

    def memory(jobs: dict[str, Job], reference: str, setting: str, **options: Any) -> list[Result]:
        assert setting.removesuffix(", peak memory") in asked
        return [Result(setting, name, reference, 1.0, None) for name in jobs]

    monkeypatch.setattr(suite, "compare_times", times)
    monkeypatch.setattr(suite, "compare_memory", memory)
    said: list[str] = []
    rows = list(suite.large_suite(Effort(), quick=False, threads=1, say=said.append))
    targets = {(row.setting, row.name): row.target for row in rows}
    assert targets["1024 px, 2 layers, inference", "decomposed"] == 1.25
    assert targets["1024 px, 2 layers, training step, peak memory", "shaw"] == 1.5
    assert targets["2048 px, one layer", "lookhere"] == 1.8
    assert targets["2048 px, one layer, local", "bias, window 7"] == 0.25
    assert all(row.target is None for row in rows if row.name == "none")
    assert [job.img_size for job in asked["2048 px, one layer, local"].values()] == [2048] * 7
    list(suite.large_suite(Effort(), quick=True, threads=1, say=said.append))
    for name, job in {**asked["2048 px, one layer, local"], **asked[suite_of_sam(asked)]}.items():
        layer, x = build(job._replace(img_size=64, size="nano"))
        with torch.no_grad():
            assert layer(x).shape == x.shape, name


def suite_of_sam(asked: dict[str, Any]) -> str:
    return next(setting for setting in asked if "Segment" in setting)


def test_a_neighbour_is_busy_and_leaves() -> None:
    with neighbour(2) as processes:
        assert [process.poll() for process in processes] == [None, None]
    assert all(process.poll() is not None for process in processes)
