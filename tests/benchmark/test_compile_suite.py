"""The suite of compiled models: every encoding beside no position, and ours beside timm's."""

from __future__ import annotations

import pytest
import torch

from vit_rpe.benchmark import compile_suite as suite
from vit_rpe.benchmark.candidates.jobs import Job, build
from vit_rpe.benchmark.candidates.peers import peers_of
from vit_rpe.benchmark.measuring.compare import Effort, Result
from vit_rpe.encodings import list_encodings


def test_every_row_is_compiled_and_beside_its_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Job]] = []

    def compared(jobs, references, setting, effort):
        asked.append(jobs)
        assert all(reference in jobs for reference in references.values())
        return [Result(setting, name, references.get(name, ""), 1.0, None) for name in jobs]

    monkeypatch.setattr(suite, "compare_times", compared)
    rows = list(suite.compile_suite(Effort(), quick=False, threads=None, say=lambda text: None))
    assert all(job.compiled for jobs in asked for job in jobs.values())
    assert {row.name for row in rows if row.reference == "none"} == {*list_encodings()} - {"none"}
    assert {row.reference for row in rows} - {"none"} == set(peers_of("timm"))
    assert all((row.target == 1.0) == (row.reference != "none") for row in rows)
    assert len(list(suite.compile_suite(Effort(), quick=True, threads=None, say=lambda text: None))) == 3


def test_many_compiled_models_are_all_compiled() -> None:
    build(Job("none", size="nano", img_size=32, patch_size=8, depth=1, compiled=True))
    assert torch._dynamo.config.cache_size_limit >= len(list_encodings()) * 2
