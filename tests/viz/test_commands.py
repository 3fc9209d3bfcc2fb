"""``vit-rpe visualize`` and ``explore``: what they write, and one clear line for what they cannot draw."""

from __future__ import annotations

import base64
import io
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
import timm
from PIL import Image

import vit_rpe  # noqa: F401  (registers the models with timm)
from vit_rpe.cli import main
from vit_rpe.data import Preprocessing, TextTreatment
from vit_rpe.training.checkpoint.checkpoint import CheckpointInfo, save_checkpoint

NAME = "vit_rpe_nano_patch2_8"
ARGS = {"img_size": [6, 10], "in_chans": 1, "num_classes": 2, "class_token": True, "depth": 2, "rpe": "rope"}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "run" / "best"
    folder.mkdir(parents=True)
    treatment = Preprocessing((6, 10), 1, (0.5,), (0.25,)).to_dict()
    model = timm.create_model(NAME, **ARGS)
    save_checkpoint(folder, model.state_dict(), CheckpointInfo(NAME, ARGS, ["cat", "<script>"], treatment))
    return folder


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    """Portrait on disk, landscape for a person: its EXIF data say that it lies on its side."""
    pixels = np.random.default_rng(0).integers(0, 256, (40, 24, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6
    path = tmp_path / "<script>.png"
    Image.fromarray(pixels).save(path, exif=exif)
    return path


def test_every_picture_of_a_checkpoint(checkpoint: Path, picture: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["--checkpoint", checkpoint.parent, "--image", picture, picture, "--query", "2,4", "--target", "cat"]
    assert main(["visualize", *map(str, words), "--layers", "0-1", "--heads", "3,0", "--output", str(out)]) == 0
    per_image = ["attention", "content", "gradient_weighted", "position", "split"]
    expected = [f"{stem}-{what}" for stem in ("_script_", "_script_.2") for what in per_image]
    expected += ["bias", "distance", "frequencies", "rollout"]
    assert sorted(path.stem for path in out.iterdir()) == sorted(expected)
    for path in out.iterdir():
        with Image.open(path) as image:
            assert min(image.size) > 150


@pytest.mark.parametrize(("kind", "starts"), [("svg", "<?xml"), ("html", "<!doctype html>")])
def test_other_formats(checkpoint: Path, picture: Path, tmp_path: Path, kind: str, starts: str) -> None:
    out = tmp_path / "out"
    words = [
        "visualize",
        "--checkpoint",
        str(checkpoint),
        "--image",
        str(picture),
        "--format",
        kind,
        "--output",
        str(out),
    ]
    assert main([*words, "--layers", "1", "--heads", "0"]) == 0
    files = list(out.iterdir())
    assert files
    assert all(path.suffix == f".{kind}" for path in files)
    assert all(path.read_text(encoding="utf-8").startswith(starts) for path in files)


def test_overlays_lie_on_the_pixels_the_model_saw(checkpoint: Path, picture: Path, tmp_path: Path) -> None:
    out = tmp_path / "explorer.html"
    assert main(["explore", "--checkpoint", str(checkpoint), "--image", str(picture), "--output", str(out)]) == 0
    page = out.read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])
    assert data["names"] == ["<script>.png"]
    assert "<script>.png" not in page
    assert re.fullmatch(r"predicted: (cat|<script>), \d+%", data["captions"][0])
    shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(data["images"][0].split(",")[1]))))
    upright = Image.open(picture).transpose(Image.Transpose.ROTATE_270).convert("L")
    assert upright.size == (40, 24)
    expected = np.asarray(upright.resize((10, 6), Image.Resampling.BICUBIC))
    np.testing.assert_allclose(shown.astype(int), expected, atol=1)


def test_a_plain_timm_model(picture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model_args = json.dumps({"depth": 2, "embed_dim": 48, "num_heads": 3, "num_classes": 5})
    words = ["--model", "vit_tiny_patch16_224", "--model-args", model_args, "--img-size", "48", "80"]
    out = tmp_path / "out"
    assert main(["visualize", *words, "--image", str(picture), "--query", "class", "--output", str(out)]) == 0
    assert "no bias picture" in capsys.readouterr().out
    assert not (out / "bias.png").exists()
    assert (out / "rollout.png").exists()
    assert main(["explore", *words, "--image", str(picture), "--output", str(out / "page.html")]) == 0


def test_a_model_of_text(tmp_path: Path) -> None:
    args = {"vocab_size": 4, "length": 9, "head": "lm", "causal": True, "embed_dim": 24, "num_heads": 3, "depth": 2}
    name = timm.list_models("rpe_sequence*")[0]
    model = timm.create_model(name, **args)
    treatment = TextTreatment(("\ufffd", "a", "b", "$"), 9, "language").to_dict()
    save_checkpoint(tmp_path, model.state_dict(), CheckpointInfo(name, args, list("?ab$"), treatment))
    out = tmp_path / "out"
    assert main(["visualize", "--checkpoint", str(tmp_path), "--text", "ab$ba", "--output", str(out)]) == 0
    assert {path.stem for path in out.iterdir()} >= {"tokens-layer0", "tokens-layer1", "distance", "bias"}
    assert main(["explore", "--checkpoint", str(tmp_path), "--image", "x.png"]) == 1


@pytest.mark.parametrize(
    ("limit", "bits", "over"), [(10_000_000, None, False), (28_300, 7, False), (26_000, 6, True), (9, None, True)]
)
def test_a_page_that_is_too_large_is_rounded_more(
    checkpoint: Path,
    picture: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    limit: int,
    bits: int | None,
    over: bool,
) -> None:
    def page(*_: object, bits: int | None = None, **__: object) -> str:
        return "x" * 1000 * (30 if bits is None else 21 + bits)

    monkeypatch.setattr("vit_rpe.commands.explore.LARGEST_FILE", limit)
    monkeypatch.setattr("vit_rpe.viz.explorer.write.explorer_page", page)
    words = ["--checkpoint", str(checkpoint), "--image", str(picture), "--output", str(tmp_path / "page.html")]
    assert main(["explore", *words]) == 0
    told = capsys.readouterr().out
    assert (f"rounded to {bits} bits" in told) == (bits is not None)
    assert ("fewer images" in told) == over
    assert (tmp_path / "page.html").stat().st_size == (30_000 if bits is None else 1000 * (21 + bits))


BAD = [
    ([], "no image given"),
    (["--image", "nowhere.png"], "no such image: nowhere.png"),
    (["--image", "words.png"], "words.png"),
    (["--image", "empty.png"], "empty.png"),
    (["--query", "3,0"], "query 3,0 is outside the grid of 3 x 5 tokens"),
    (["--query", "left"], "query 'left' must be 'class', 'mean' or a grid position"),
    (["--layers", "2"], "layer 2 does not exist: the model has 2 layers"),
    (["--layers", "last"], "--layers takes numbers such as 0,3,6-8, got 'last'"),
    (["--heads", "0,4"], "head 4 does not exist: the model has 4 heads"),
    (["--target", "car"], "unknown class 'car' (did you mean 'cat'?)"),
    (["--target", "2"], "class 2 does not exist: the model has 2 classes"),
    (["--text", "abc"], "takes images, not text"),
    (["--pretrained"], "go with --model"),
]


@pytest.mark.parametrize(("words", "message"), BAD, ids=[message for _, message in BAD])
def test_one_clear_line(
    checkpoint: Path, picture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    (tmp_path / "words.png").write_text("not an image")
    (tmp_path / "empty.png").touch()
    if "--image" not in words and words:
        words = [*words, "--image", str(picture)]
    here = Path.cwd()
    os.chdir(tmp_path)
    try:
        status = main(["visualize", "--checkpoint", str(checkpoint), *words, "--output", "out"])
    finally:
        os.chdir(here)
    lines = capsys.readouterr().err.splitlines()
    assert status == 1
    assert len(lines) == 1
    assert message in lines[0]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["visualize", "explore"])
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "resnet18"], "ResNet has no attention layer"),
        (["--model", "vit_rpe_nano_patch2_9"], "unknown model 'vit_rpe_nano_patch2_9' (did you mean 'vit_rpe_nano"),
        (["--model", NAME, "--model-args", '{"rpee": 1}'], "has no argument 'rpee' (did you mean 'rpe'?)"),
    ],
)
def test_models_that_cannot_be_seen(
    picture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, words: list[str], message: str
) -> None:
    assert main([command, *words, "--image", str(picture), "--output", str(tmp_path / "out")]) == 1
    *notes, error = capsys.readouterr().err.splitlines()
    assert message in error
    assert all("random weights here" in note for note in notes)


def test_a_checkpoint_without_class_names(
    checkpoint: Path, picture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps({**config, "class_names": []}))
    assert main(["explore", "--checkpoint", str(checkpoint), "--image", str(picture)]) == 1
    assert "has no class names" in capsys.readouterr().err


def test_lists_of_numbers() -> None:
    from vit_rpe.commands._options import numbers

    assert numbers("0,3,6-8", "layer", 9) == [0, 3, 6, 7, 8]
    assert numbers(None, "layer", 9) is None
    with pytest.raises(ValueError, match="layer 999999999999 does not exist: the model has 9 layers"):
        numbers("0-999999999999", "layer", 9)
    with pytest.raises(ValueError, match="--layers '6-3' names no layer"):
        numbers("6-3", "layer", 9)


@pytest.mark.parametrize(
    ("words", "message"), [("[1]", "expected a JSON object"), ('{"rpe":', "not JSON: '{\"rpe\":'")]
)
def test_model_args_that_are_no_mapping(capsys: pytest.CaptureFixture[str], words: str, message: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["visualize", "--model", NAME, "--model-args", words])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
