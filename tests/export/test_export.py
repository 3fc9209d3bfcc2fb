"""Exported files give the model's logits; what cannot be exported is refused with its reason."""

from __future__ import annotations

import builtins
from pathlib import Path

import pytest
import torch

import vit_rpe
from tests.models.tiny import randomize, tiny
from vit_rpe.models.export import export_model

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
SAMPLE = ("bias",)
ENCODINGS = [
    name if name in SAMPLE else pytest.param(name, marks=pytest.mark.exhaustive) for name in vit_rpe.list_encodings()
]


@pytest.mark.parametrize("rpe", ENCODINGS)
def test_onnx_with_dynamic_batch(tmp_path: Path, rpe: str) -> None:
    model = randomize(tiny(rpe=rpe, class_token=True))
    assert export_model(model, tmp_path / "model.onnx", file_format="onnx") <= 1e-4


@pytest.mark.parametrize("rpe", ["rope", *(pytest.param(n, marks=pytest.mark.exhaustive) for n in ("bias", "shaw"))])
def test_program_with_dynamic_sizes(tmp_path: Path, rpe: str) -> None:
    model = randomize(tiny(rpe=rpe, class_token=True, depth=1))
    path = tmp_path / "model.pt2"
    assert export_model(model, path, file_format="torch_export", dynamic_size=True) <= 1e-4


@pytest.mark.exhaustive
@pytest.mark.parametrize("rpe", vit_rpe.list_encodings())
def test_onnx_with_dynamic_sizes(tmp_path: Path, rpe: str) -> None:
    model = randomize(tiny(rpe=rpe, class_token=True, depth=1))
    assert export_model(model, tmp_path / "model.onnx", file_format="onnx", dynamic_size=True) <= 1e-4


def test_bad_requests_are_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="learned absolute embedding is resampled"):
        export_model(tiny(pos_embed="learned"), tmp_path / "model.pt2", file_format="torch_export", dynamic_size=True)
    with pytest.raises(ValueError, match="did you mean 'onnx'"):
        export_model(tiny(), tmp_path / "model.x", file_format="onxx")
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        for file_format in ("onnx", "torch_export"):
            with pytest.raises(ValueError, match=rf"the model is in {str(dtype)[6:]}: call model\.float\(\) first"):
                export_model(tiny().to(dtype), tmp_path / "model.x", file_format=file_format)
    real = builtins.__import__

    def without(name: str, *args, **kwargs):
        if name.partition(".")[0] == "onnxruntime":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr("vit_rpe.models.export.importlib.import_module", lambda name: without(name))
    with pytest.raises(ValueError, match=r"needs onnxruntime: pip install 'vit_rpe\[export\]'"):
        export_model(tiny(), tmp_path / "model.onnx", file_format="onnx")
    assert list(tmp_path.iterdir()) == [], "nothing half-written"
