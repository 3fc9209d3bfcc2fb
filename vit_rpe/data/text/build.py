"""Text as data of a run: a language to model (``text``), or passages to tell apart (``text_classes``)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vit_rpe.data.bad_images import BadImages
from vit_rpe.data.bundle import DataBundle
from vit_rpe.data.classes import natural_order
from vit_rpe.data.errors import DataNotFoundError
from vit_rpe.data.text.config import TextData
from vit_rpe.data.text.corpus import LIBRARY_CLASSES, TextFile, class_of, corpus, held_out, text_files
from vit_rpe.data.text.treatment import TextTreatment, common_characters, text_treatment
from vit_rpe.data.text.windows import TextWindows, evaluation_windows, training_windows
from vit_rpe.data.treatment import Request

__all__ = ["build_classes", "build_language", "validation_text"]


def validation_text(config: TextData, treatment: TextTreatment) -> np.ndarray:
    """The held-out text of a language model, encoded, int16 (T,)."""
    return treatment.encode(_split_text(corpus(config), config)[1])


def build_language(files: list[TextFile], config: TextData, request: Request) -> DataBundle:
    """Split and encode text to model as a language; a new model's vocabulary is made from the training text.

    Raises:
        DataNotFoundError: no files on one side of the split.
        ValueError: too little text for ``data.length``.
    """
    train, val, words = _split_text(files, config)
    if request.treatment is None:
        treatment = TextTreatment(common_characters(train, config.characters), config.length, "language")
    else:
        treatment = text_treatment(request.treatment, "the model")
    length = treatment.length
    samples = evaluation_windows(treatment.encode(val), length, native=length, characters=config.val_characters)
    return DataBundle(
        train=training_windows(treatment.encode(train), length, count=config.windows, seed=request.seed),
        val=samples,
        class_names=list(treatment.characters),
        treatment=treatment,
        bad_images=BadImages(0),
        split=f"{words}; {len(samples) * length:,} characters are scored",
    )


def _split_text(files: list[TextFile], config: TextData) -> tuple[str, str, str]:
    """Training text, validation text, and the split in words."""
    if config.val_path is not None:
        train, val, how = files, text_files(config.val_path), config.val_path
    elif len(files) == 1:
        whole = files[0].read()
        cut = round(len(whole) * (1 - config.val_fraction))
        return whole[:cut], whole[cut:], f"{files[0].name}: its last {config.val_fraction:.0%} held out"
    else:
        train, val = held_out(files, config.val_fraction, seed=config.split_seed)
        how = f"{config.val_fraction:.0%} held out by file, split_seed={config.split_seed}"
    _check_sides(config, train, val)
    train = _fraction(config, train)
    texts = ["".join(file.read() for file in side) for side in (train, val)]
    where = config.path or "Python standard library"
    words = f"{where}: {len(texts[0]):,} and {len(texts[1]):,} characters, {len(train)} and {len(val)} files ({how})"
    return texts[0], texts[1], words


def build_classes(files: list[TextFile], config: TextData, request: Request) -> DataBundle:
    """Split and encode passages to tell apart, a folder a class; raises as ``build_language``."""
    files = [file for file in files if config.path is not None or class_of(file) in LIBRARY_CLASSES]
    if config.val_path is not None:
        train, val = files, text_files(config.val_path)
    else:
        train, val = held_out(files, config.val_fraction, seed=config.split_seed)
    _check_sides(config, train, val)
    train = _fraction(config, train)
    names = natural_order({folder for file in train if (folder := class_of(file)) is not None})
    if len(names) < 2:
        raise DataNotFoundError(
            f"data.path={config.path!r} must hold a folder of text files for each of 2 or more classes"
        )
    texts = [[_of_class(side, name) for name in names] for side in (train, val)]
    if request.treatment is None:
        treatment = TextTreatment(common_characters("".join(texts[0]), config.characters), config.length, "classes")
    else:
        treatment = text_treatment(request.treatment, "the model")
    samples = [
        _class_windows(side, treatment, seed=request.seed, drawn=number == 0) for number, side in enumerate(texts)
    ]
    where = config.path or f"Python standard library ({', '.join(names)})"
    return DataBundle(
        train=samples[0],
        val=samples[1],
        class_names=names,
        treatment=treatment,
        bad_images=BadImages(0),
        split=f"{where}: {len(samples[0])} and {len(samples[1])} passages, {config.val_fraction:.0%} held out by file",
    )


def _class_windows(texts: Sequence[str], treatment: TextTreatment, *, seed: int, drawn: bool) -> TextWindows:
    """Passages of every class, one after the other; ``drawn``: each may start anywhere in its own stretch."""
    length, starts, classes, begin = treatment.length, [], [], 0
    for number, text in enumerate(texts):
        count = (len(text) - length * drawn) // length
        if count < 1:
            raise ValueError(f"class {number} has {len(text)} characters, data.length={length} needs {2 * length}")
        starts.append(begin + np.arange(count) * length)
        classes.append(np.full(count, number, dtype=np.int64))
        begin += len(text)
    first = np.concatenate(starts)
    last = first + (length - 1 if drawn else 0)
    return TextWindows(
        treatment.encode("".join(texts)), first, last, length=length, classes=np.concatenate(classes), seed=seed
    )


def _of_class(files: list[TextFile], name: str) -> str:
    return "".join(file.read() for file in files if class_of(file) == name)


def _fraction(config: TextData, files: list[TextFile]) -> list[TextFile]:
    if config.fraction == 1:
        return files
    return held_out(files, config.fraction, seed=config.split_seed, key="fraction")[1] or files[:1]


def _check_sides(config: TextData, train: list[TextFile], val: list[TextFile]) -> None:
    for side, files in (("training", train), ("validation", val)):
        if not files:
            raise DataNotFoundError(
                f"data.path={config.path!r} has no {side} file: give data.val_path, or another data.val_fraction "
                f"(is {config.val_fraction}) or data.split_seed"
            )
