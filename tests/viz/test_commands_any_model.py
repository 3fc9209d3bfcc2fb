"""``visualize`` and ``explore`` on windowed models, on weights of a file, and on models of ``transformers``."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
import transformers as hf
from PIL import Image
from safetensors.torch import save_file
from torch import nn

from vit_rpe.cli import main
from vit_rpe.commands._named_model import _load_weights

SWIN = "swin_tiny_patch4_window7_224"
ARGS = {"embed_dim": 24, "depths": [2, 2], "num_heads": [2, 4], "num_classes": 5}
SMALL = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "patch_size": 8, "image_size": 32}
SMALL = {**SMALL, "intermediate_size": 32}


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "cat.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (60, 90, 3), dtype=np.uint8)).save(path)
    return path


def words(command: str, picture: Path, out: Path, *more: Any) -> list[str]:
    return [command, *map(str, more), "--image", str(picture), "--output", str(out)]


def of_swin(*more: Any) -> tuple[Any, ...]:
    return ("--model", SWIN, "--model-args", json.dumps(ARGS), "--img-size", 48, 72, *more)


def stems(folder: Path) -> set[str]:
    return {path.stem for path in folder.iterdir()}


def page_data(path: Path) -> Any:
    found = re.search(r'id="data">(.*?)</script>', path.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_a_windowed_model(picture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(words("visualize", picture, out, *of_swin("--query", "7,9", "--target", "3", "--heads", "0,3"))) == 0
    assert "has random weights here" in capsys.readouterr().err
    per_image = {f"cat-{what}" for what in ("attention", "content", "position", "gradient_weighted", "split")}
    assert stems(out) == {*per_image, "rollout", "distance", "bias"}
    assert main(words("visualize", picture, tmp_path / "no", *of_swin("--query", "12,0"))) == 1
    assert "query 12,0 is outside the grid of 12 x 18 tokens" in capsys.readouterr().err
    assert main(words("visualize", picture, tmp_path / "no", *of_swin("--heads", "4"))) == 1
    assert "head 4 does not exist: the model has 4 heads" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()


def test_an_explorer_of_chosen_layers(picture: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    assert main(words("explore", picture, out, *of_swin("--layers", "1,3"))) == 0
    data = page_data(out)
    assert [each["label"] for each in data["layers"]] == ["1 layers.0.blocks.1", "3 layers.1.blocks.1"]
    assert [each["heads"] for each in data["layers"]] == [2, 4]
    assert data["grid"] == {"rows": 12, "columns": 18, "prefix": 0}


def test_a_pooling_head_shows_its_own_map(picture: Path, tmp_path: Path) -> None:
    small = json.dumps({"depth": 2, "embed_dim": 24, "num_heads": 3, "num_classes": 5})
    for name in ("vit_base_patch16_siglip_224", "vit_pe_core_tiny_patch16_384"):
        model = ("--model", name, "--model-args", small, "--img-size", 64, 96, "--query", "1,2")
        assert main(words("visualize", picture, tmp_path / name, *model)) == 0
        assert {"cat-attention", "rollout", "distance"} <= stems(tmp_path / name)


@pytest.mark.parametrize("suffix", ["safetensors", "pth"])
def test_weights_of_a_file(picture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str) -> None:
    torch.manual_seed(3)
    state = timm.create_model(SWIN, img_size=(48, 72), **ARGS).state_dict()
    file = tmp_path / f"weights.{suffix}"
    save_file(state, file) if suffix == "safetensors" else torch.save({"state_dict": state}, file)
    pages = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        out = tmp_path / f"{seed}.html"
        assert main(words("explore", picture, out, *of_swin("--weights", file, "--layers", "0"))) == 0
        pages.append(out.read_text(encoding="utf-8"))
    assert pages[0] == pages[1]
    assert "random" not in capsys.readouterr().err
    del state["norm.weight"]
    torch.save(state, tmp_path / "less.pth")
    bad = {
        "less.pth": "lacks 1 of the model's weights (norm.weight)",
        "none.pth": "No such file",
        "none.safetensors": "No such file",
    }
    for name, message in bad.items():
        given = of_swin("--weights", tmp_path / name)
        assert main(words("visualize", picture, tmp_path / "no", *given)) == 1
        error = capsys.readouterr().err
        assert message in error
        assert len(error.splitlines()) == 1
    assert main(words("visualize", picture, tmp_path / "no", *of_swin("--weights", file, "--pretrained"))) == 1
    assert "choose one" in capsys.readouterr().err


def test_a_classifier_of_transformers(picture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, out = tmp_path / "model", tmp_path / "out"
    model = hf.ViTForImageClassification(hf.ViTConfig(**SMALL, id2label={0: "cat", 1: "dog"})).eval()
    model.save_pretrained(folder)
    told = {"do_normalize": True, "image_mean": [0.1, 0.2, 0.3], "image_std": [0.5, 0.6, 0.7], "resample": 2}
    (folder / "preprocessor_config.json").write_text(json.dumps({**told, "size": {"height": 32, "width": 32}}))
    assert main(words("visualize", picture, out, "--hf", folder, "--query", "1,2", "--target", "dog")) == 0
    assert {"cat-attention", "cat-gradient_weighted", "rollout"} <= stems(out)
    assert main(words("explore", picture, out / "page.html", "--hf", folder)) == 0
    data = page_data(out / "page.html")
    assert data["captions"][0].startswith("predicted: ")
    assert data["classToken"]
    assert data["grid"] == {"rows": 4, "columns": 4, "prefix": 1}
    assert "random" not in capsys.readouterr().err


def test_what_the_files_say_is_done(tmp_path: Path) -> None:
    from vit_rpe.commands._hugging_face import hugging_face_model

    folder = tmp_path / "model"
    model = hf.ViTModel(hf.ViTConfig(**SMALL), add_pooling_layer=False).eval()
    model.save_pretrained(folder)
    told = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.5, 0.6, 0.7], "resample": 2, "do_center_crop": True}
    told = {**told, "size": {"shortest_edge": 40}, "crop_size": {"height": 32, "width": 32}}
    (folder / "preprocessor_config.json").write_text(json.dumps(told))
    named = hugging_face_model(str(folder), None, torch.device("cpu"))
    treatment: Any = named.treatment
    assert treatment.img_size == (32, 32)
    assert treatment.mean == (0.1, 0.2, 0.3)
    assert treatment.std == (0.5, 0.6, 0.7)
    assert treatment.crop_pct == pytest.approx(0.8)
    assert treatment.interpolation == "bilinear"
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(named.model(x), model(x).last_hidden_state)
        large = hugging_face_model(str(folder), (48, 64), torch.device("cpu")).model(torch.randn(1, 3, 48, 64))
    assert large.shape == (1, 1 + 6 * 8, 24)


def test_the_tower_of_a_model_of_images_and_text(
    picture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 32}
    text = {**text, "vocab_size": 20, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
    folder = tmp_path / "model"
    hf.SiglipModel(hf.SiglipConfig(vision_config=SMALL, text_config=text)).save_pretrained(folder)
    out = tmp_path / "out"
    capsys.readouterr()
    assert main(words("visualize", picture, out, "--hf", folder, "--query", "1,2", "--img-size", 48, 64)) == 0
    assert {"cat-attention", "rollout"} <= stems(out)
    assert "has no preprocessor_config.json: pixels are scaled to -1..1" in capsys.readouterr().err
    assert main(words("visualize", picture, out, "--hf", folder, "--query", "6,0", "--img-size", 48, 64)) == 1
    assert "query 6,0 is outside the grid of 6 x 8 tokens" in capsys.readouterr().err


def test_parts_that_are_not_in_the_files_are_said(
    picture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "model"
    hf.ViTModel(hf.ViTConfig(**SMALL), add_pooling_layer=False).save_pretrained(folder)
    assert main(words("visualize", picture, tmp_path / "out", "--hf", folder, "--layers", "0")) == 0
    assert "2 parameters of" in (told := capsys.readouterr().err)
    assert "are random: pooler.dense.bias, pooler.dense.weight" in told
    config = json.loads((folder / "config.json").read_text())
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "config.json").write_text(json.dumps(config))
    assert main(words("visualize", picture, tmp_path / "no", "--hf", empty)) == 1
    assert f"error: --hf {empty}:" in capsys.readouterr().err


def test_a_folder_needs_no_network(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    hf.ViTModel(hf.ViTConfig(**SMALL), add_pooling_layer=False).save_pretrained(folder)
    code = (
        "import socket, torch\n"
        "def no(*_, **__): raise AssertionError('network')\n"
        "socket.socket.connect = socket.getaddrinfo = no\n"
        "from vit_rpe.commands._hugging_face import hugging_face_model\n"
        f"hugging_face_model({str(folder)!r}, None, torch.device('cpu'))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_a_size_that_a_model_refuses(picture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = json.dumps({"embed_dim": [32], "depths": [1], "stem_width": 8, "block_type": ["M"]})
    given = ("--model", "maxvit_tiny_tf_224", "--model-args", small, "--img-size", 112)
    assert main(words("explore", picture, tmp_path / "page.html", *given)) == 1
    assert "maxvit_tiny_tf_224 does not take images of 112 x 112 pixels" in capsys.readouterr().err


def test_the_size_that_positions_were_trained_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model of torch's file keeps it, wrapped too; a file of bare tensors does not, which is said."""
    args = {"rpe": "cpb", "img_size": 32, "depth": 1, "num_classes": 3}
    trained: Any = timm.create_model("vit_rpe_tiny_patch4_32", **args)
    trained.set_input_size((24, 40))
    wrapped = {"model": nn.Sequential(OrderedDict(module=trained)).state_dict()}
    for name, state in (("plain.pth", trained.state_dict()), ("wrapped.pth", wrapped)):
        torch.save(state, tmp_path / name)
        model: Any = timm.create_model("vit_rpe_tiny_patch4_32", **{**args, "img_size": (24, 40)})
        assert model.blocks[0].attn.rpe.native == (6, 10)
        _load_weights(model, tmp_path / name)
        assert model.blocks[0].attn.rpe.native == (8, 8), name
        assert capsys.readouterr().err == ""
    save_file(trained.state_dict(), tmp_path / "bare.safetensors")
    _load_weights(model, tmp_path / "bare.safetensors")
    assert "does not say the grid its positions were trained on, 8 x 8 tokens are taken" in capsys.readouterr().err
