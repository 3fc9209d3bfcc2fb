"""Text as data: corpora, the split by file, the vocabulary, windows of training and of evaluation."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from vit_rpe.data import DataConfig, DataNotFoundError, build_data, read_treatment, rebuild_data, train_loader
from vit_rpe.data.account import Account
from vit_rpe.data.text.corpus import held_out, library_files, text_files
from vit_rpe.data.text.treatment import UNKNOWN, TextTreatment, common_characters
from vit_rpe.data.text.windows import evaluation_windows, training_windows


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    for number in range(12):
        folder = tmp_path / ("letters" if number % 2 else "digits")
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.txt").write_text(("abcdefg " if number % 2 else "0123456 ") * (20 + number))
    (tmp_path / ".hidden").write_text("x" * 1000)
    return tmp_path


def config(corpus: Path, **options) -> DataConfig:
    return DataConfig(**{"name": "text", "path": str(corpus), "length": 5, "characters": 9, "batch_size": 3, **options})


def build(config: DataConfig):
    return build_data(config, img_size=None, in_chans=None, seed=4)


def test_the_standard_library_is_found_and_split_by_name_alone() -> None:
    files = library_files()
    assert {"json/decoder.py", "string.py"} <= {file.name for file in files}
    assert not any("test" in file.name.split("/") for file in files)
    train, val = held_out(files, 0.1, seed=0)
    assert len(train) + len(val) == len(files)
    assert 0.05 * len(files) < len(val) < 0.2 * len(files)
    assert held_out(files[::-1], 0.1, seed=0)[1] == val[::-1]
    assert held_out(files, 0.1, seed=1)[1] != val


def test_no_file_is_on_both_sides(corpus: Path) -> None:
    files = text_files(str(corpus), Account())
    assert len(files) == 12
    train, val = held_out(files, 0.3, seed=3)
    assert train
    assert val
    assert not set(train) & set(val)


def test_vocabulary() -> None:
    treatment = TextTreatment(common_characters("bbbaac\u20ac\U0001f600", 4), 5, "language")
    assert treatment.characters == (UNKNOWN, "a", "b", "c")
    tokens = treatment.encode("cab\u20acz\U0001f600")
    assert tokens.tolist() == [3, 1, 2, 0, 0, 0]
    assert treatment.decode(tokens) == f"cab{UNKNOWN * 3}"
    assert read_treatment(json.loads(json.dumps(treatment.to_dict()))) == treatment
    assert len(treatment.encode("")) == 0


def test_a_language_batch(corpus: Path) -> None:
    bundle = build(config(corpus))
    assert bundle.num_classes == 9
    assert bundle.class_names[0] == UNKNOWN
    loader = train_loader(bundle, config(corpus), seed=4)
    loader.set_epoch(0)
    tokens, labels = next(iter(loader))
    assert tokens.shape == labels.shape == (3, 5)
    assert tokens.dtype == labels.dtype == torch.int64
    assert torch.equal(tokens[:, 1:], labels[:, :-1])
    assert "held out by file" in bundle.split


def test_windows_are_drawn_anew_each_epoch_and_the_same_each_time() -> None:
    text = np.arange(1000, dtype=np.int16)
    windows = training_windows(text, 7, count=20, seed=3)
    first, again, later = (windows.__getitems__([(epoch, i) for i in range(20)]).inputs for epoch in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, later)
    starts = first[:, 0]
    assert (starts.diff() > 0).all()
    assert starts[0] < 50
    assert starts[-1] >= 943
    assert len(training_windows(text, 7, count=None, seed=3)) == 993 // 7
    assert training_windows(text[:8], 7, count=3, seed=0)[(0, 2)][1].tolist() == [1, 2, 3, 4, 5, 6, 7]


def test_every_length_scores_the_same_characters() -> None:
    text = np.arange(1000, dtype=np.int16)
    scored = []
    for length in (1, 3, 6, 12, 24, 48):
        windows = evaluation_windows(text, length, native=6, characters=200)
        batch = windows.__getitems__(list(range(len(windows))))
        assert torch.equal(batch.inputs + 1, batch.labels)
        scored.append(batch.labels.flatten())
    assert len(scored[0]) == 4 * 48
    assert all(torch.equal(labels, scored[0]) for labels in scored)
    assert len(scored[0].unique()) == len(scored[0])
    with pytest.raises(ValueError, match="length=5 must divide 48"):
        evaluation_windows(text, 5, native=6, characters=None)
    with pytest.raises(ValueError, match=r"has 48 characters, data\.length=6 needs 49"):
        evaluation_windows(text[:48], 6, native=6, characters=None)


def test_passages_of_classes(corpus: Path) -> None:
    bundle = build(config(corpus, name="text_classes", val_fraction=0.4, split_seed=1))
    assert bundle.class_names == ["digits", "letters"]
    for samples, epoch in ((bundle.train, 2), (bundle.val, 0)):
        batch = samples.__getitems__([(epoch, index) for index in range(len(samples))])
        for tokens, label in zip(batch.inputs, batch.labels, strict=True):
            characters = set(bundle.treatment.decode(tokens)) - {" ", UNKNOWN}
            assert all(character.isdigit() == (label == 0) for character in characters)
    assert set(np.unique(bundle.val.labels)) == {0, 1}


def test_a_trained_vocabulary_is_kept(corpus: Path, tmp_path: Path) -> None:
    treatment = build(config(corpus)).treatment
    other = tmp_path / "digits" / "0.txt"
    bundle = rebuild_data(config(other, length=64, val_fraction=0.5), treatment)
    assert bundle.treatment == treatment
    assert bundle.val.length == 5
    assert "its last 50% held out" in bundle.split


def test_a_fraction_trains_on_fewer_files(corpus: Path) -> None:
    whole, part = (build(config(corpus, fraction=fraction, windows=None)) for fraction in (1.0, 0.5))
    assert 0 < len(part.train) < len(whole.train)
    assert len(part.val) == len(whole.val)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mixup": 0.2}, "data.mixup=0.2 means nothing for data.name=text"),
        ({"augment": "light"}, "data.augment='light' means nothing"),
        ({"length": 0}, "data.length=0, expected at least 1"),
        ({"characters": 1}, "data.characters=1, expected at least 2"),
        ({"name": "digits"}, "data.length=5 means nothing for data.name=digits"),
    ],
)
def test_refused_options(corpus: Path, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config(corpus, **options)


def test_refused_data(corpus: Path) -> None:
    with pytest.raises(DataNotFoundError, match="no text files"):
        build(config(corpus / "nowhere"))
    with pytest.raises(DataNotFoundError, match="no validation file"):
        build(config(corpus, val_fraction=1e-9))
    with pytest.raises(ValueError, match=r"data\.length=500000 needs"):
        build(config(corpus, length=500_000))
    with pytest.raises(DataNotFoundError, match="for each of 2 or more classes"):
        build(config(corpus / "digits", name="text_classes", val_fraction=0.5))
    with pytest.raises(ValueError, match="img_size=None and in_chans=None are missing"):
        build(DataConfig())
