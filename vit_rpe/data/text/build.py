"""Text as data of a run: a language to model (``text``), or passages to tell apart (``text_classes``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from vit_rpe.data.account import BadImages
from vit_rpe.data.bundle import DataBundle
from vit_rpe.data.classes import natural_order
from vit_rpe.data.errors import DataNotFoundError
from vit_rpe.data.sources.splits import once
from vit_rpe.data.text.config import TextData
from vit_rpe.data.text.corpus import LIBRARY_CLASSES, Corpus, TextFile, class_of, corpus, held_out
from vit_rpe.data.text.treatment import TextTreatment, common_characters, text_treatment
from vit_rpe.data.text.windows import TextWindows, evaluation_windows, training_windows
from vit_rpe.data.treatment import Request

__all__ = ["build_classes", "build_language", "validation_text"]


def build_language(found: Corpus, config: TextData, request: Request) -> DataBundle:
    """Split and encode text to model as a language; a new model's vocabulary is made from the training text.

    Raises:
        DataNotFoundError: no files on one side of the split.
        ValueError: too little text for ``data.length``, or an option without effect.
    """
    train, val, words = _split_text(found, config, strict=request.treatment is None)
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
        held_out=found.held_out,
        account=found.account,
    )


def validation_text(config: TextData, treatment: TextTreatment) -> np.ndarray:
    """The held-out text of a language model, encoded, int16 (T,)."""
    return treatment.encode(_split_text(corpus(config), config, strict=False)[1])


def _split_text(found: Corpus, config: TextData, *, strict: bool) -> tuple[str, str, str]:
    """Training text, validation text, and the split in words."""
    if found.val is None and len(found.train) == 1:
        whole = found.train[0].read()
        cut = round(len(whole) * (1 - config.val_fraction))
        found.account.taken["files, split inside"] = 1
        if strict and config.split_seed != TextData.split_seed:
            raise ValueError(f"data.split_seed={config.split_seed} means nothing for one file: its end is held out")
        texts, files = [whole[:cut], whole[cut:]], "1 file"
        how = f"{found.train[0].name}: its last {config.val_fraction:.0%} held out"
        if config.fraction < 1:
            texts[0] = texts[0][: round(cut * config.fraction)]
    else:
        train, val, how = _sides(found, config, strict=strict)
        sides = [_texts(found, side, word) for side, word in ((train, "training"), (val, found.held_out))]
        _say_copies(found, *sides)
        texts, files = ["".join(side.values()) for side in sides], f"{len(sides[0])} and {len(sides[1])} files"
    where = config.path or "Python standard library"
    return texts[0], texts[1], f"{where}: {len(texts[0]):,} and {len(texts[1]):,} characters, {files} ({how})"


def _sides(found: Corpus, config: TextData, *, strict: bool) -> tuple[list[TextFile], list[TextFile], str]:
    """The files of both sides, and how they were told apart."""
    train, val = found.train, found.val
    if val is None:
        paths = set(once((str(file.path) for file in train), found.account))
        train = [file for file in train if str(file.path) in paths]
        train, val = held_out(train, config.val_fraction, seed=config.split_seed)
        how = f"{config.val_fraction:.0%} held out by file, split_seed={config.split_seed}"
    else:
        how = config.val_path or f"its own {found.held_out} files"
        if strict and config.val_fraction != TextData.val_fraction:
            raise ValueError(
                f"data.val_fraction={config.val_fraction} means nothing, the data have {how}: leave it out"
            )
    for side, there in (("training", train), (found.held_out, val)):
        if not there:
            raise DataNotFoundError(
                f"data.path={config.path!r} has no {side} file: give data.val_path, or another data.val_fraction "
                f"(is {config.val_fraction}) or data.split_seed"
            )
    if config.fraction < 1:
        kept = held_out(train, config.fraction, seed=config.split_seed, key="fraction")[1] or train[:1]
        found.account.leave_out("not in data.fraction", f"data.fraction={config.fraction}", len(train) - len(kept))
        train = kept
    return train, val, how


def _texts(found: Corpus, files: Sequence[TextFile], side: str) -> dict[TextFile, str]:
    """What the files hold; those that are no text are left out and counted.

    Raises:
        DataNotFoundError: none is text.
    """
    texts: dict[TextFile, str] = {}
    for file in files:
        try:
            texts[file] = file.read()
        except DataNotFoundError as error:
            found.account.leave_out("no text", str(error))
            last = error
    if not texts:
        raise DataNotFoundError(f"no {side} file is text: {last}")
    found.account.taken[f"{side} files"] = len(texts)
    return texts


def _say_copies(found: Corpus, train: dict[TextFile, str], val: dict[TextFile, str]) -> None:
    """Note training files that say what a held-out file says."""
    held = {text: file for file, text in reversed(val.items()) if text.strip()}
    twice = [(file, held[text]) for file, text in train.items() if text in held]
    for file, other in twice[:1]:
        found.account.say_copies(len(twice), file.name, other.name, side=found.held_out, what="files")


def _say_two_classes(found: Corpus, side: dict[TextFile, str], word: str) -> None:
    """Note files that say what a file of another class says."""
    first: dict[str, TextFile] = {}
    met = [(file, first.setdefault(text, file)) for file, text in side.items() if text.strip()]
    twice = [(file, other) for file, other in met if class_of(file) != class_of(other)]
    for file, other in twice[:1]:
        found.account.say_two_classes(len(twice), file.name, other.name, side=word, what="files")


def build_classes(found: Corpus, config: TextData, request: Request) -> DataBundle:
    """Split and encode passages to tell apart, a folder a class; raises as ``build_language``."""
    if config.path is None:
        library = [file for file in found.train if class_of(file) in LIBRARY_CLASSES]
        found = replace(found, train=library)
    train, val, how = _sides(found, config, strict=request.treatment is None)
    sides = [_texts(found, side, word) for side, word in ((train, "training"), (val, found.held_out))]
    names = natural_order({folder for file in sides[0] if (folder := class_of(file)) is not None})
    if len(names) < 2:
        raise DataNotFoundError(
            f"data.path={config.path!r} must hold a folder of text files for each of 2 or more classes; it has "
            f"{', '.join(names) or 'none'}"
        )
    for side in sides:
        for file in [file for file in side if class_of(file) is None]:
            found.account.leave_out("in no folder of a class", file.name)
            del side[file]
    extra = natural_order({str(class_of(file)) for file in sides[1]} - set(names))
    if extra:
        raise ValueError(f"{found.held_out} has classes that training does not have: {', '.join(extra[:10])}")
    for side, word in zip(sides, ("training", found.held_out), strict=True):
        found.account.taken[f"{word} files"] = len(side)
        _say_two_classes(found, side, word)
    _say_copies(found, *sides)
    texts = [["".join(text for file, text in side.items() if class_of(file) == name) for name in names]
             for side in sides]  # fmt: skip
    if request.treatment is None:
        treatment = TextTreatment(common_characters("".join(texts[0]), config.characters), config.length, "classes")
    else:
        treatment = text_treatment(request.treatment, "the model")
    seed = request.seed
    samples = [_class_windows(text, names, treatment, seed=seed, drawn=i == 0) for i, text in enumerate(texts)]
    where = config.path or f"Python standard library ({', '.join(names)})"
    return DataBundle(
        train=samples[0],
        val=samples[1],
        class_names=names,
        treatment=treatment,
        bad_images=BadImages(0),
        split=f"{where}: {len(samples[0])} and {len(samples[1])} passages, {how}",
        held_out=found.held_out,
        account=found.account,
    )


def _class_windows(
    texts: Sequence[str], names: Sequence[str], treatment: TextTreatment, *, seed: int, drawn: bool
) -> TextWindows:
    """Passages of every class, one after the other; ``drawn``: each may start anywhere in its own stretch."""
    length, starts, classes, begin = treatment.length, [], [], 0
    for number, text in enumerate(texts):
        count = (len(text) - length * drawn) // length
        if count < 1:
            raise ValueError(
                f"class {names[number]!r} has {len(text)} characters, data.length={length} needs {2 * length}"
            )
        starts.append(begin + np.arange(count) * length)
        classes.append(np.full(count, number, dtype=np.int64))
        begin += len(text)
    first = np.concatenate(starts)
    last = first + (length - 1 if drawn else 0)
    return TextWindows(
        treatment.encode("".join(texts)), first, last, length=length, classes=np.concatenate(classes), seed=seed
    )
