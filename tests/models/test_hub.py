"""``push_to_hf_hub``, as timm does it: what is uploaded, and that the same files make the same model again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import timm
import torch
from huggingface_hub import HfApi
from timm.models import push_to_hf_hub

import vit_rpe
from tests.models.tiny import images, randomize, tiny

SIZE = (8, 12)


@pytest.fixture
def uploads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The hub's client with its network calls replaced: an upload copies the folder."""
    seen: dict[str, Any] = {}

    def create_repo(self: HfApi, repo_id: str, **options: Any) -> SimpleNamespace:
        seen["created"] = (repo_id, options["private"])
        return SimpleNamespace(repo_id=f"someone/{repo_id}")

    def upload_folder(self: HfApi, *, folder_path: Path, **options: Any) -> str:
        seen.update(options, folder=tmp_path / "hub")
        shutil.copytree(folder_path, tmp_path / "hub")
        return "uploaded"

    monkeypatch.setattr(HfApi, "create_repo", create_repo)
    monkeypatch.setattr(HfApi, "file_exists", lambda self, **options: False)
    monkeypatch.setattr(HfApi, "upload_folder", upload_folder)
    return seen


@pytest.mark.parametrize("rpe", ["bias", [{"name": "shaw", "max_distance": 3}, "rope_mixed"]])
def test_what_is_pushed_is_the_model(uploads: dict[str, Any], rpe: Any) -> None:
    model = randomize(tiny(rpe=rpe, class_token=True))
    card = {"tags": ["relative-position"], "details": {"Encoding": "see model_args"}}
    done = push_to_hf_hub(model, "mine", private=True, safe_serialization=True, model_card=card)
    assert done == "uploaded"
    assert uploads["created"] == ("mine", True)
    assert uploads["repo_id"] == "someone/mine"
    folder = uploads["folder"]
    assert {path.name for path in folder.iterdir()} == {"config.json", "model.safetensors", "README.md"}
    config = json.loads((folder / "config.json").read_text())
    assert config["architecture"] == "vit_rpe_custom"
    assert config["num_classes"] == 5
    assert config["model_args"]["rpe"] == rpe
    assert config["model_args"]["img_size"] == list(SIZE)
    assert "relative-position" in (folder / "README.md").read_text()
    back = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    x = images(SIZE)
    torch.testing.assert_close(back(x), model(x), rtol=0, atol=0)


def test_a_converted_model_can_be_pushed(uploads: dict[str, Any]) -> None:
    theirs = timm.create_model("vit_tiny_patch16_224", img_size=(32, 48), depth=1, embed_dim=24, num_heads=3)
    ours = randomize(vit_rpe.from_timm(theirs, rpe="bias"))
    push_to_hf_hub(ours, "mine", safe_serialization=True)
    back = timm.create_model(f"local-dir:{uploads['folder']}", pretrained=True).eval()
    x = images((32, 48))
    torch.testing.assert_close(back(x), ours(x), rtol=0, atol=0)
