"""Starting from the weights of another run, at another image size and with other classes."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.training.conftest import state_of
from vit_rpe.training.checkpoint.checkpoint import load_checkpoint
from vit_rpe.training.model import _start_from

STILL = ("--train.lr=1e-12", "--train.warmup_lr=0", "--train.min_lr=0")


def test_at_another_size_it_starts_from_the_resampled_weights(tiny, tmp_path: Path) -> None:
    tiny("first", "--train.epochs=1", "--model.img_size=[8, 12]")
    start = (f"--model.checkpoint={tmp_path / 'first'}", "--model.img_size=[12, 8]")
    tiny("second", *start, "--train.epochs=1", "--train.optimizer=sgd", *STILL)
    source = load_checkpoint(tmp_path / "first", img_size=(12, 8)).model
    model = load_checkpoint(tmp_path / "second").model
    images = torch.randn(2, 1, 12, 8)
    torch.testing.assert_close(model(images), source(images), rtol=1e-5, atol=1e-6)
    assert model.blocks[0].attn.rpe.table.shape == (3, 11, 7)


@pytest.mark.filterwarnings("always:the data have the classes")
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
    tiny("second", *words, f"--model.checkpoint={tmp_path / 'first'}", *STILL)
    assert re.search(
        "the classes dark, light .* has 0, 1, .*: the classifier starts anew",
        (tmp_path / "second" / "log.txt").read_text(),
    )
    one, two = state_of(tmp_path / "first")["model"], state_of(tmp_path / "second")["model"]
    assert two["head.weight"].shape == (2, 24)
    torch.testing.assert_close(two["blocks.2.mlp.fc1.weight"], one["blocks.2.mlp.fc1.weight"])


@pytest.mark.parametrize("names", [["b", "a"], ["a", "c"]])
def test_as_many_classes_of_other_names_get_a_new_classifier(names: list[str]) -> None:
    """The head of one model would answer with the names of the other."""
    model = torch.nn.Module()
    model.head, model.body = torch.nn.Linear(3, 2), torch.nn.Linear(3, 3)
    given = {name: torch.full_like(value, 7) for name, value in model.state_dict().items()}
    source = SimpleNamespace(
        model=SimpleNamespace(state_dict=lambda: dict(given)),
        class_names=["a", "b"],
        info=SimpleNamespace(preprocessing={}),
        folder="first",
    )
    bundle: Any = SimpleNamespace(class_names=names, treatment=SimpleNamespace(to_dict=dict))
    head = model.head.weight.clone()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vit_rpe.training.model.load_checkpoint", lambda *_, **__: source)
        with pytest.warns(UserWarning, match=f"the classes {', '.join(names)}.*: the classifier starts anew"):
            _start_from(model, "first", None, bundle)
        torch.testing.assert_close(model.head.weight, head)
        assert bool((model.body.weight == 7).all())
        bundle.class_names = ["a", "b"]
        _start_from(model, "first", None, bundle)
    assert bool((model.head.weight == 7).all())


def test_another_vocabulary_is_refused() -> None:
    source = SimpleNamespace(
        model=torch.nn.Linear(3, 2), class_names=[], info=SimpleNamespace(preprocessing={"characters": ["a", "b"]})
    )
    bundle: Any = SimpleNamespace(class_names=[], treatment=SimpleNamespace(to_dict=lambda: {"characters": ["a", "c"]}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vit_rpe.training.model.load_checkpoint", lambda *_, **__: source)
        with pytest.raises(ValueError, match=r"vocabulary of 2 characters, model\.checkpoint first has one of 2"):
            _start_from(torch.nn.Linear(3, 2), "first", None, bundle)


def test_weights_of_another_model_are_refused(tiny, tmp_path: Path) -> None:
    tiny("first", "--train.epochs=1")
    start = f"--model.checkpoint={tmp_path / 'first'}"
    with pytest.raises(ValueError, match="do not fit the model"):
        tiny("second", start, "--model.args.embed_dim=48")
    with pytest.raises(ValueError, match=r"give model\.pretrained or model\.checkpoint, not both"):
        tiny("second", start, "--model.pretrained=true")
