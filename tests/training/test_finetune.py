"""Starting from the weights of another run, at another image size and with other classes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.training.conftest import state_of
from vit_rpe.training.checkpoint.checkpoint import load_checkpoint


def test_at_another_size_it_starts_from_the_resampled_weights(tiny, tmp_path: Path) -> None:
    tiny("first", "--train.epochs=1", "--model.img_size=[8, 12]")
    start = (f"--model.checkpoint={tmp_path / 'first'}", "--model.img_size=[12, 8]")
    tiny("second", *start, "--train.epochs=1", "--train.optimizer=sgd", "--train.lr=1e-12", "--train.warmup_lr=0")
    source = load_checkpoint(tmp_path / "first", img_size=(12, 8)).model
    model = load_checkpoint(tmp_path / "second").model
    images = torch.randn(2, 1, 12, 8)
    torch.testing.assert_close(model(images), source(images), rtol=1e-5, atol=1e-6)
    assert model.blocks[0].attn.rpe.table.shape == (3, 11, 7)


def test_other_classes_get_a_new_classifier(tiny, tmp_path: Path) -> None:
    """The checkpoint has 10 classes, the images of the second run have two."""
    import numpy as np
    from PIL import Image

    tiny("first", "--train.epochs=1")
    for split, count in (("train", 20), ("val", 4)):
        for label in ("dark", "light"):
            folder = tmp_path / "images" / split / label
            folder.mkdir(parents=True)
            for number in range(count):
                pixels = np.full((8, 8), 40 * number % 100 + 120 * (label == "light"), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{number}.png")
    words = ("--data.name=folder", f"--data.path={tmp_path / 'images'}", "--data.fraction=1", "--train.epochs=1")
    tiny("second", *words, f"--model.checkpoint={tmp_path / 'first'}", "--train.lr=1e-12", "--train.warmup_lr=0")
    one, two = state_of(tmp_path / "first")["model"], state_of(tmp_path / "second")["model"]
    assert two["head.weight"].shape == (2, 24)
    torch.testing.assert_close(two["blocks.2.mlp.fc1.weight"], one["blocks.2.mlp.fc1.weight"])


def test_weights_of_another_model_are_refused(tiny, tmp_path: Path) -> None:
    tiny("first", "--train.epochs=1")
    start = f"--model.checkpoint={tmp_path / 'first'}"
    with pytest.raises(ValueError, match="do not fit the model"):
        tiny("second", start, "--model.args.embed_dim=48")
    with pytest.raises(ValueError, match=r"give model\.pretrained or model\.checkpoint, not both"):
        tiny("second", start, "--model.pretrained=true")
