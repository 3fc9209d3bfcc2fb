"""The suite of recent encodings: every row can be built, and is held against a reference of the same run."""

from __future__ import annotations

import pytest
import torch

from vit_rpe.benchmark import recent_suite as suite
from vit_rpe.benchmark.candidates.jobs import Job, build
from vit_rpe.benchmark.measuring.compare import Effort, Result


def test_every_row_is_beside_its_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def compared(jobs, references, setting, effort):
        asked.append(jobs)
        assert all(reference in jobs for reference in references.values())
        return [Result(setting, name, references.get(name, ""), 1.0, None) for name in jobs]

    monkeypatch.setattr(suite, "compare_times", compared)
    said: list[str] = []
    rows = list(suite.recent_suite(Effort(), quick=True, threads=None, say=said.append))
    assert said == ["224 px, inference, batch 1", "224 px, training step, batch 1"]
    assert [row.name for row in rows] == [*suite.ROWS] * 2
    assert {row.name: row.target for row in rows[: len(suite.ROWS)]}["pape, 4 parabolas"] == 1.25
    assert all(row.target is None for row in rows[len(suite.ROWS) :])
    assert len(list(suite.recent_suite(Effort(), quick=False, threads=None, say=said.append))) == 4 * len(suite.ROWS)
    for job in asked[0].values():
        model, x = build(job._replace(depth=1, img_size=32, size="nano"))
        with torch.no_grad():
            assert model(x).shape == (1, 1000)
    assert all(isinstance(job, Job) and job.depth == 2 for job in asked[0].values())
