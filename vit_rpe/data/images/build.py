"""Images of a source as training and validation samples."""

from __future__ import annotations

import numpy as np

from vit_rpe.data.account import BadImages
from vit_rpe.data.batch import Samples
from vit_rpe.data.bundle import DataBundle
from vit_rpe.data.errors import DataNotFoundError
from vit_rpe.data.images.augment import Augmentation
from vit_rpe.data.images.config import ImageData
from vit_rpe.data.images.copies import between_classes, copies
from vit_rpe.data.images.preprocessing import Preprocessing, image_treatment
from vit_rpe.data.images.samples import ImageSamples
from vit_rpe.data.images.split import stratified_split
from vit_rpe.data.sources.base import DataSource, LabelledImages, SubsetImages
from vit_rpe.data.treatment import Request

__all__ = ["build_images", "build_preprocessing"]


def build_images(source: DataSource, config: ImageData, request: Request) -> DataBundle:
    """Split and check the images of ``source``, and treat them as ``request`` asks.

    Raises:
        DataNotFoundError: a split is empty.
        ValueError: an option does not fit the data.
    """
    if request.treatment is not None:
        augment, preprocessing = "none", image_treatment(request.treatment, "the model")
    elif request.img_size is None or request.in_chans is None:
        raise ValueError(
            f"data.name={config.name} gives images: img_size={request.img_size} and in_chans={request.in_chans} "
            "are missing"
        )
    else:
        augment = config.augment
        preprocessing = build_preprocessing(config, source, img_size=request.img_size, in_chans=request.in_chans)
    _check_taken(config, source)
    if len(source.class_names) < 2:
        raise ValueError(
            f"data.name={config.name} path={config.path!r} has the only class "
            f"{', '.join(source.class_names)}: expected 2 or more classes"
        )
    train, val, words = _splits(config, source, strict=request.treatment is None)
    bundle = DataBundle(
        train=ImageSamples(train, Augmentation(augment, preprocessing), seed=request.seed, replace_bad=True),
        val=ImageSamples(val, Augmentation("none", preprocessing), seed=request.seed, replace_bad=False),
        class_names=source.class_names,
        treatment=preprocessing,
        bad_images=BadImages(config.max_bad_images if config.on_bad_image == "skip" else None),
        split=words,
        held_out=source.held_out,
        account=source.account,
    )
    bundle.check_labels(bundle.num_classes)
    if config.on_bad_image == "skip":
        for side, samples in (("training", bundle.train), (bundle.held_out, bundle.val)):
            _check_readable(samples, side, most=config.max_bad_images + 1)
    return bundle


def _check_taken(config: ImageData, source: DataSource) -> None:
    """Raise ``DataNotFoundError`` where a side has no image: before classes are counted, which would be none."""
    for side, images in (("training", source.train), (source.held_out, source.val)):
        if images is not None and len(images.labels) == 0:
            where = f"data.name={config.name} path={config.path!r}"
            raise DataNotFoundError(f"{where} has no {side} images; {source.account.left()}")


def _check_readable(samples: Samples, side: str, *, most: int) -> None:
    """Read until one image can be read. Raises ``DataNotFoundError`` where none can, or ``most`` cannot."""
    for index in range(min(len(samples), most)):
        batch = samples.__getitems__([index])
        if len(batch.labels):
            return
        name, reason = batch.bad[0]
    raise DataNotFoundError(f"none of the first {index + 1} {side} images can be read; the last: {name}: {reason}")


def build_preprocessing(
    config: ImageData, source: DataSource, *, img_size: tuple[int, int], in_chans: int
) -> Preprocessing:
    """The evaluation treatment: the source's own values where the config gives none."""
    return Preprocessing(
        img_size=(img_size[0], img_size[1]),
        in_chans=in_chans,
        mean=config.mean or _per_channel(source.mean, in_chans),
        std=config.std or _per_channel(source.std, in_chans),
        crop_pct=config.crop_pct or source.crop_pct,
        interpolation=config.interpolation or source.interpolation,
        background=config.background,
        max_pixels=config.max_pixels,
    )


def _per_channel(values: tuple[float, ...], channels: int) -> tuple[float, ...]:
    """A source's statistics of grey images repeat over colours; those of colour images average to one of grey."""
    if len(values) == channels:
        return values
    if len(values) == 1:
        return values * channels
    return (sum(values) / len(values),) * channels


def _once(images: LabelledImages, source: DataSource) -> LabelledImages:
    """The images, each under the first of its names: before some are held out, so that none is on both sides."""
    if source.same is None:
        return images
    first = np.sort(np.unique(source.same, return_index=True)[1])
    others = np.setdiff1d(np.arange(len(images.labels)), first)
    if not len(others):
        return images
    source.account.leave_out("other names of one file", images.name(int(others[0])), len(others))
    return SubsetImages(images, first)


def _splits(config: ImageData, source: DataSource, *, strict: bool) -> tuple[LabelledImages, LabelledImages, str]:
    """Training and held-out images, and the split in words; ``strict``: options without effect are refused."""
    train, val, word = source.train, source.val, source.held_out
    for side, images in (("training", train), (word, val)) if strict else ():
        conflicts = None if images is None else between_classes(images)
        if images is not None and conflicts:
            names = images.name(conflicts[0][0]), images.name(conflicts[0][1])
            source.account.say_two_classes(len(conflicts), *names, side=side, what="images")
    where = f"data.name={config.name} path={config.path!r}"
    how = ""
    if val is None:
        train = _once(train, source)
        rest, chosen = stratified_split(train.labels, config.val_fraction, config.split_seed)
        train, val = SubsetImages(train, rest), SubsetImages(train, chosen)
        how = f" (stratified split, {config.val_fraction:.0%} held out, split_seed={config.split_seed})"
    elif strict:
        own = f"{where} has its own {word} images: leave it out"
        if config.val_fraction != ImageData.val_fraction:
            raise ValueError(f"data.val_fraction={config.val_fraction} means nothing, {own}")
        if config.split_seed != ImageData.split_seed and config.fraction == 1:
            raise ValueError(f"data.split_seed={config.split_seed} means nothing, {own}, or set data.fraction")
    if len(val.labels) == 0:
        raise DataNotFoundError(f"{where} has no {word} images")
    if config.fraction < 1:
        before = len(train.labels)
        kept, _ = stratified_split(train.labels, 1 - config.fraction, config.split_seed)
        train = SubsetImages(train, kept)
        source.account.leave_out("not in data.fraction", f"data.fraction={config.fraction}", before - len(kept))
    source.account.taken.update({"training": len(train.labels), word: len(val.labels)})
    twice = copies(train, val) if strict else None
    if twice:
        pair = train.name(twice[0][0]), val.name(twice[0][1])
        source.account.say_copies(len(twice), *pair, side=word, what="images")
    words = f"{config.name}: {len(train.labels)} training and {len(val.labels)} {word} images{how}"
    return train, val, words
