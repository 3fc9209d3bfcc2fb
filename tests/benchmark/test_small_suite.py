"""The suite of few tokens: every model is beside none, every call beside torch's own, which computes the same."""

from __future__ import annotations

import pytest
import torch

from vit_rpe.benchmark import small_suite as suite
from vit_rpe.benchmark.candidates.jobs import Job, build
from vit_rpe.benchmark.measuring.compare import Effort, Result


def test_every_model_is_beside_none_and_every_call_beside_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Job]] = []

    def compared(jobs, references, setting, effort):
        asked.append(jobs)
        assert set(references) == set(jobs) - {"none"}
        return [Result(setting, name, references.get(name, ""), 1.0, None) for name in jobs]

    monkeypatch.setattr(suite, "compare_times", compared)
    monkeypatch.setattr(suite, "CALLS", ((4, 2), (5, 1)))
    effort = Effort(seconds=0.0, rounds=1, least=1)
    rows = list(suite.small_suite(effort, quick=False, threads=None, say=lambda text: None))
    of_models = [row for row in rows if "nano" in row.setting]
    assert len(of_models) == len(suite.MODELS) * (len(suite.TABLES) + len(suite.OTHERS))
    assert {row.target for row in of_models if row.name == "bias"} == {suite.TARGET, None}, "196 tokens have no target"
    assert [(row.reference, row.target) for row in rows[len(of_models) :]] == [("torch", 1.0)] * 2
    for jobs in asked:
        model, x = build(jobs["bias"]._replace(depth=1, batch=1))
        assert model.training
        assert model(x).shape == (1, 1000)


def test_both_calls_compute_the_same() -> None:
    q, k, v = torch.randn(3, 2, suite.HEADS, 6, suite.WIDTH).unbind(0)
    mask = torch.randn(suite.HEADS, 6, 6, requires_grad=True)
    torch.testing.assert_close(suite._by_us(q, k, v, mask), suite._by_torch(q, k, v, mask))
