"""Other people's models with position of ours: exported with any batch, compiled in one graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import vit_rpe
from tests.exchange.test_replace import replaced
from vit_rpe.models.export import export_model
from vit_rpe.models.families.samples.of_timm import CASES, build, image

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
SPECS = ("keep", "frozen", "bias", "rope", "cpb", "alibi", "decomposed")


def positioned(case: str, rpe: str) -> Any:
    if rpe == "frozen":
        return vit_rpe.freeze(replaced(build(case)))
    return replaced(build(case), rpe)


def sampled(*sample: tuple[str, str]) -> Any:
    """All cases with all of :data:`SPECS`; those of the sample by default."""
    pairs = [(case, rpe) for case in CASES for rpe in SPECS]
    marked = [pair if pair in sample else pytest.param(*pair, marks=pytest.mark.exhaustive) for pair in pairs]
    return pytest.mark.parametrize(("case", "rpe"), marked)


@sampled(("swin", "keep"), ("swinv2", "rope"), ("sam", "frozen"))
def test_compiled_in_one_graph(case: str, rpe: str) -> None:
    torch._dynamo.reset()
    model, x = positioned(case, rpe), image(case)
    with torch.no_grad():
        expected = model(x)
        found = torch.compile(model, backend="eager", fullgraph=True)(x)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("rpe", SPECS)
@pytest.mark.parametrize("case", ["swin", "swinv2", "sam"])
def test_compiled_to_machine_code(case: str, rpe: str) -> None:
    torch._dynamo.reset()
    model, x = positioned(case, rpe), image(case)
    compiled = torch.compile(model, fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
    if rpe == "frozen":
        return
    expected = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
    found = torch.autograd.grad(compiled(x).square().sum(), list(model.parameters()))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


@sampled(("swin", "frozen"), ("sam", "keep"))
def test_program_with_any_batch(tmp_path: Path, case: str, rpe: str) -> None:
    size = tuple(image(case).shape[1:])
    path = tmp_path / "model.pt2"
    assert export_model(positioned(case, rpe), path, file_format="torch_export", images=size) <= 1e-4


@pytest.mark.parametrize(
    ("case", "rpe"),
    [
        ("swin", "keep"),
        *(
            pytest.param(case, rpe, marks=pytest.mark.exhaustive)
            for case in CASES
            for rpe in ("keep", "frozen", "rope")
            if (case, rpe) != ("swin", "keep")
        ),
    ],
)
def test_onnx_with_any_batch(tmp_path: Path, case: str, rpe: str) -> None:
    size = tuple(image(case).shape[1:])
    assert export_model(positioned(case, rpe), tmp_path / "m.onnx", file_format="onnx", images=size) <= 1e-4


def test_what_cannot_be_known_is_asked_for(tmp_path: Path) -> None:
    model, path = positioned("swin", "keep"), tmp_path / "model.pt2"
    with pytest.raises(ValueError, match=r"not known for SwinTransformer: give images="):
        export_model(model, path, file_format="torch_export")
    with pytest.raises(ValueError, match="cannot be dynamic: SwinTransformer is made for one size"):
        export_model(model, path, file_format="torch_export", images=(3, 48, 72), dynamic_size=True)
