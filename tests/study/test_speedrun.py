"""Images packed exactly, cut and mirrored as said, and models trained for a time instead of a number of epochs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from vit_rpe.cli import main
from vit_rpe.study.speedrun import packed
from vit_rpe.study.speedrun.packed import Split, read_packed, write_packed
from vit_rpe.study.speedrun.train import PADDING, Recipe, augmented, run, to_device
from vit_rpe.training.config.schema import TrainConfig


def some_images(count: int = 40, height: int = 6, width: int = 10) -> Split:
    random = np.random.default_rng(0)
    return Split(random.integers(0, 256, (count, height, width, 3), dtype=np.uint8), np.arange(count) % 3)


@pytest.fixture
def parts(tmp_path, monkeypatch):
    """Three files: sheets of 8 images, files of two sheets."""
    monkeypatch.setattr(packed, "TALLEST", 8 * 6)
    monkeypatch.setattr(packed, "PART_BYTES", 2500)
    paths = write_packed(some_images(), tmp_path, "train", ["a", "b", "c"])
    assert len(paths) > 2
    return paths


def test_packed_images_are_the_same_to_the_pixel_and_in_order(parts):
    found, classes = read_packed(parts[0].parent, "train")
    np.testing.assert_array_equal(found.images, some_images().images)
    np.testing.assert_array_equal(found.labels, some_images().labels)
    assert classes == ["a", "b", "c"]


def test_missing_and_changed_parts_are_told(parts):
    with pytest.raises(ValueError, match="holds no test-0"):
        read_packed(parts[0].parent, "test")
    with safe_open(parts[0], "pt") as file:
        tensors, about = {key: file.get_tensor(key) for key in file.keys()}, file.metadata()  # noqa: SIM118
    save_file(tensors, parts[0], {**about, "sha256": "0" * 64})
    with pytest.raises(ValueError, match="does not give the pixels that were packed"):
        read_packed(parts[0].parent, "train")
    parts[0].write_bytes(parts[1].read_bytes())
    with pytest.raises(ValueError, match="a part is missing"):
        read_packed(parts[0].parent, "train")


def test_augmented_images_are_cuts_of_the_mirrored_border_at_every_place():
    images = torch.from_numpy(some_images(400).images).permute(0, 3, 1, 2)
    found = augmented(images, torch.Generator().manual_seed(0))
    seen = set()
    for before, after in zip(images, found, strict=True):
        wide = np.pad(before.numpy(), ((0, 0), (PADDING, PADDING), (PADDING, PADDING)), mode="reflect")
        places = [
            (row, column, flip)
            for row in range(2 * PADDING + 1)
            for column in range(2 * PADDING + 1)
            for flip in (1, -1)
            if np.array_equal(wide[:, row : row + 6, column : column + 10][:, :, ::flip], after.numpy())
        ]
        assert len(places) == 1
        seen.add(places[0])
    assert {row for row, _, _ in seen} == {column for _, column, _ in seen} == set(range(2 * PADDING + 1))
    assert {flip for _, _, flip in seen} == {1, -1}


def test_a_run_ends_with_its_time_and_learns(monkeypatch):
    """Classes that differ in brightness, on a clock that moves by a tenth of a second at every look."""
    ticks = iter(range(10**6))
    monkeypatch.setattr("vit_rpe.study.speedrun.train.time.perf_counter", lambda: next(ticks) / 10)
    labels = np.arange(64) % 2
    images = np.broadcast_to((60 + 120 * labels)[:, None, None, None], (64, 8, 8, 3)).astype(np.uint8)
    data = to_device(Split(images, labels), Split(images[:20], labels[:20]), torch.device("cpu"))
    assert data.mean.tolist() == [120.0] * 3
    assert data.std.tolist() == [60.0] * 3
    train = TrainConfig(epochs=10, optimizer="adamw", lr=1e-2, warmup_epochs=0)
    args = {"embed_dim": 16, "depth": 1, "num_heads": 2}
    recipe = Recipe("vit_rpe_nano_patch2_8", args, train, 16, 8.0, 4, compiled=False, precision="no")
    reported: list = []
    _, measured = run("bias", data, recipe, reported.append)
    assert reported == measured
    assert len(measured) == 4
    assert 8.0 <= measured[-1].seconds < 9.0
    assert measured[-1].accuracy == 1.0
    assert [one.epochs for one in measured] == sorted(one.epochs for one in measured)


def test_the_command_packs_trains_and_writes_its_table(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("vit_rpe.commands.speedrun.QUICK_SECONDS", 0.2)
    where = str(tmp_path / "packed")
    assert main(["speedrun", "--pack", "digits", "--output", where]) == 0
    words = ["--quick", "--encodings", "learned", "bias", "--data.path", where, "--output", str(tmp_path)]
    assert main(["speedrun", *words]) == 0
    rows = (tmp_path / "speedrun.csv").read_text().splitlines()
    assert rows[0] == "encoding,seed,seconds,epochs,loss,accuracy"
    assert {row.split(",")[0] for row in rows[1:]} == {"learned", "bias"}
    assert "pos_embed" in load_file(tmp_path / "learned-seed0.safetensors")
    assert any(key.endswith("rpe.table") for key in load_file(tmp_path / "bias-seed0.safetensors"))
    assert "1438 images" in capsys.readouterr().out
