"""The suite of windowed models: every row is against timm's own model, which computes the same."""

from __future__ import annotations

import pytest
import torch

from vit_rpe.benchmark import windowed_suite as suite
from vit_rpe.benchmark.candidates.jobs import Job, build
from vit_rpe.benchmark.measuring.compare import Effort, Result


def test_every_row_is_beside_timm(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Job]] = []

    def times(jobs, references, setting, effort):
        asked.append(jobs)
        assert set(references) == set(jobs) - {"timm"}
        assert set(references.values()) == {"timm"}
        return [Result(setting, name, references.get(name, ""), 1.0, None) for name in jobs]

    def memory(jobs, reference, setting, *, threads, clock):
        assert (reference, threads, clock) == ("timm", 1, "wall")
        return times(jobs, {"keep": "timm"}, setting, None)

    monkeypatch.setattr(suite, "compare_times", times)
    monkeypatch.setattr(suite, "compare_memory", memory)
    rows = list(suite.windowed_suite(Effort(), quick=False, threads=1, say=lambda text: None))
    assert [(row.setting, row.name, row.target) for row in rows] == [
        ("Swin-T, 224 px, inference, batch 1", "keep", 0.95),
        ("Swin-T, 224 px, inference, batch 1", "keep, frozen", 0.9),
        ("Swin-T, 224 px, inference, batch 8", "keep", 0.95),
        ("Swin-T, 224 px, inference, batch 8", "keep, frozen", 0.9),
        ("Swin-T, 224 px, training step, batch 1", "keep", 1.0),
        ("Swin-T, 224 px, training step, batch 8", "keep", 1.0),
        ("SAM-B encoder, 1024 px, inference, batch 1", "keep", 0.75),
        ("SAM-B encoder, 1024 px, inference, batch 1, peak memory", "keep", 0.5),
    ]
    outputs = []
    images = torch.randn(1, 3, 224, 224)
    for job in asked[0].values():
        model, x = build(job)
        assert x.shape == images.shape
        with torch.no_grad():
            outputs.append(model(images))
    for other in outputs[1:]:
        torch.testing.assert_close(other, outputs[0], rtol=1e-4, atol=1e-5)
