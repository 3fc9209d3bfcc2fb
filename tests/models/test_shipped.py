"""The trained models that come with the package: whole, small, loaded by name without a network and without pickles."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any, NoReturn

import pytest
import timm
import torch
from PIL import Image
from safetensors import safe_open
from sklearn.datasets import load_digits

import vit_rpe
from vit_rpe.cli import main
from vit_rpe.encodings import encoding_class
from vit_rpe.models.shipped import WEIGHTS, shipped_models, tags_of
from vit_rpe.viz.explorer.write import PACKAGE, SCRIPTS
from vit_rpe.viz.page_files import page_file

NAMES = list(shipped_models())
PLAIN = "vit_rpe_nano_patch2_8"
ONE = f"{PLAIN}.bias_digits"
DEMO = Path(__file__).parents[2] / "docs" / "explorer_digits.html"


def refuse(*args: Any, **kwargs: Any) -> NoReturn:
    raise AssertionError("a pickle was read, or another machine asked")


@pytest.fixture
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(torch, "load", refuse)
    monkeypatch.setattr("pickle.load", refuse)


def test_folders() -> None:
    assert ONE in NAMES
    assert sorted(NAMES) == sorted(folder.name for folder in WEIGHTS.iterdir())
    files = [file for file in WEIGHTS.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 10_000_000
    assert {file.name for file in files} == {"README.md", "attention.png", "config.json", "model.safetensors"}
    assert len(files) == 4 * len(NAMES)


@pytest.mark.usefixtures("_alone")
@pytest.mark.parametrize("name", NAMES)
def test_timm_and_load_run_make_the_same_model(name: str) -> None:
    model, run = timm.create_model(name, pretrained=True).eval(), vit_rpe.load_run(name)
    inputs = torch.randn(3, *model.pretrained_cfg["input_size"])
    torch.testing.assert_close(model(inputs), run.model(inputs), rtol=0, atol=0)
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
    assert model.pretrained_cfg["label_names"] == tuple(run.class_names)
    with safe_open(shipped_models()[name].folder / "model.safetensors", "pt") as file:
        for key in file.keys():  # noqa: SIM118  (the file is no mapping)
            stored = file.get_tensor(key)
            assert stored.dtype == torch.float16 or not stored.is_floating_point()  # a norm counts its batches
            torch.testing.assert_close(model.state_dict()[key].to(stored.dtype), stored, rtol=0, atol=0)


def test_timm_lists_them() -> None:
    assert set(NAMES) <= set(timm.list_pretrained("vit_rpe_*"))
    assert {timm.models.get_pretrained_cfg(name).license for name in NAMES} == {"apache-2.0"}


def test_the_architecture_alone_stays_what_it_was() -> None:
    assert not timm.models.is_model_pretrained(PLAIN)
    model = timm.create_model(PLAIN)
    assert (model.num_classes, model.patch_embed.proj.in_channels) == (1000, 3)
    with pytest.raises(RuntimeError, match="No pretrained weights exist"):
        timm.create_model(PLAIN, pretrained=True)


def test_arguments_win_over_those_of_the_tag() -> None:
    changed = timm.create_model(ONE, pretrained=True, img_size=(8, 12), in_chans=3, num_classes=4)
    assert changed(torch.randn(2, 3, 8, 12)).shape == (2, 4)
    assert type(timm.create_model(ONE, rpe="shaw").blocks[0].attn.rpe) is encoding_class("shaw")
    with pytest.raises(RuntimeError, match=r"attn\.rpe\.table"):
        timm.create_model(ONE, pretrained=True, rpe="rope")


def test_a_tag_of_nobody() -> None:
    assert tags_of("vit_rpe_tiny_patch4_32") == {}
    with pytest.raises(
        ValueError, match=rf"no checkpoint at {PLAIN}\.bias_digit: .*did you mean '{PLAIN}\.bias_digits'"
    ):
        vit_rpe.load_run(f"{PLAIN}.bias_digit")


@pytest.mark.parametrize("words", [["--checkpoint", ONE], ["--model", ONE, "--pretrained"]], ids=lambda words: words[0])
def test_explore_knows_classes_and_data_of_a_name(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert main(["explore", *words, "--output", str(page)]) == 0
    assert "predicted: 9, " in page.read_text()
    assert f"<title>{ONE}</title>" in page.read_text()
    assert "random weights" not in capsys.readouterr().err


def test_predict_and_visualize_take_a_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    digit = load_digits()
    Image.fromarray((digit.images[12] * 255 / 16).astype("uint8")).save(tmp_path / "two.png")
    assert main(["predict", str(tmp_path / "two.png"), "--checkpoint", ONE, "--top", "1"]) == 0
    assert f"  {digit.target[12]} " in capsys.readouterr().out
    words = ["--checkpoint", ONE, "--layers", "5", "--heads", "0", "--format", "html", "--output", str(tmp_path)]
    assert main(["visualize", *words]) == 0
    assert ONE in (tmp_path / "pictures.html").read_text()


def test_the_demo_page_is_what_the_command_writes() -> None:
    """``vit-rpe explore --checkpoint NAME --output docs/explorer_digits.html``; numbers may differ by machine."""
    shown = DEMO.read_text(encoding="utf-8")
    assert f"<title>{ONE}</title>" in shown
    for name in ("explorer.css", *SCRIPTS):
        assert page_file(PACKAGE, name) in shown, f"write docs/explorer_digits.html anew: {name} has changed"
    assert len(shown) < 300_000


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--shipped", "--sort", "accuracy", "--json"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(one["name"] for one in told) == NAMES
    assert [one["top1"] for one in told] == sorted((one["top1"] for one in told), reverse=True)
    assert main(["list", "--shipped"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in NAMES)
    assert main(["list", "runs", "--shipped"]) == 1
    assert "--shipped lists what comes with the package" in capsys.readouterr().err
