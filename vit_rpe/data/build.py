"""From a ``DataConfig`` to a ``DataBundle``."""

from __future__ import annotations

from dataclasses import replace

from vit_rpe.data.bad_images import BadImages
from vit_rpe.data.bundle import DataBundle
from vit_rpe.data.config import TEXT_NAMES, DataConfig
from vit_rpe.data.errors import DataNotFoundError
from vit_rpe.data.images.augment import Augmentation
from vit_rpe.data.images.preprocessing import Preprocessing
from vit_rpe.data.images.samples import ImageSamples
from vit_rpe.data.sources import SOURCES, DataSource, LabelledImages, SubsetImages
from vit_rpe.data.split import stratified_split
from vit_rpe.data.text.build import build_text
from vit_rpe.data.text.treatment import TextTreatment

__all__ = ["build_data", "build_preprocessing", "rebuild_data"]


def build_data(config: DataConfig, *, img_size: tuple[int, int] | None, in_chans: int | None, seed: int) -> DataBundle:
    """Find, check and split the data of ``config``.

    Args:
        config: the data options; its own ``img_size`` has been given to the model and is not looked at here.
        img_size: (height, width) the model takes, pixels; None for text.
        in_chans: channels the model takes, 1 or 3; None for text.
        seed: the training seed; augmentation draws depend on it, splits do not.

    Raises:
        DataNotFoundError: the data is missing, incomplete or empty.
        ValueError: an option does not fit the data.
    """
    if config.name in TEXT_NAMES:
        return build_text(config, seed=seed)
    if img_size is None or in_chans is None:
        raise ValueError(
            f"data.name={config.name} gives images: img_size={img_size} and in_chans={in_chans} are missing"
        )
    source = SOURCES[config.name](config)
    preprocessing = build_preprocessing(config, source, img_size=img_size, in_chans=in_chans)
    return _bundle(config, source, preprocessing, seed=seed)


def _bundle(config: DataConfig, source: DataSource, preprocessing: Preprocessing, *, seed: int) -> DataBundle:
    train, val, words = _splits(config, source)
    bundle = DataBundle(
        train=ImageSamples(train, Augmentation(config.augment, preprocessing), seed=seed, replace_bad=True),
        val=ImageSamples(val, Augmentation("none", preprocessing), seed=seed, replace_bad=False),
        class_names=source.class_names,
        preprocessing=preprocessing,
        bad_images=BadImages(config.max_bad_images if config.on_bad_image == "skip" else None),
        split=words,
    )
    bundle.check_labels(bundle.num_classes)
    return bundle


def rebuild_data(config: DataConfig, treatment: Preprocessing | TextTreatment, *, seed: int = 0) -> DataBundle:
    """The data of ``config`` for a trained model: images with its own treatment, whatever their source would
    take, and without augmentation in the training split either; or text with its vocabulary and length.

    Raises:
        DataNotFoundError, ValueError: as :func:`build_data`.
    """
    if isinstance(treatment, TextTreatment):
        if config.name not in TEXT_NAMES:
            raise ValueError(f"data.name={config.name} gives images, the model takes text")
        return build_text(config, seed=seed, treatment=treatment)
    if config.name in TEXT_NAMES:
        raise ValueError(f"data.name={config.name} gives text, the model takes images")
    return _bundle(replace(config, augment="none"), SOURCES[config.name](config), treatment, seed=seed)


def build_preprocessing(
    config: DataConfig, source: DataSource, *, img_size: tuple[int, int], in_chans: int
) -> Preprocessing:
    """The evaluation treatment: the source's own values where the config gives none."""
    return Preprocessing(
        img_size=(img_size[0], img_size[1]),
        in_chans=in_chans,
        mean=_per_channel(config.mean or source.mean, in_chans),
        std=_per_channel(config.std or source.std, in_chans),
        crop_pct=config.crop_pct or source.crop_pct,
        interpolation=config.interpolation or source.interpolation,
        background=config.background,
        max_pixels=config.max_pixels,
    )


def _per_channel(values: tuple[float, ...], channels: int) -> tuple[float, ...]:
    """Statistics of grey images repeat over colours; those of colour images average to one of grey."""
    if len(values) == channels:
        return tuple(values)
    if len(values) == 1:
        return (values[0],) * channels
    return (sum(values) / len(values),) * channels


def _splits(config: DataConfig, source: DataSource) -> tuple[LabelledImages, LabelledImages, str]:
    train, val = source.train, source.val
    if len(train.labels) == 0:
        raise DataNotFoundError(f"data.name={config.name} path={config.path!r} has no training images")
    held_out = ""
    if val is None:
        rest, chosen = stratified_split(train.labels, config.val_fraction, config.split_seed)
        train, val = SubsetImages(train, rest), SubsetImages(train, chosen)
        held_out = f" (stratified split, {config.val_fraction:.0%} held out, split_seed={config.split_seed})"
    if len(val.labels) == 0:
        raise DataNotFoundError(f"data.name={config.name} path={config.path!r} has no validation images")
    if config.fraction < 1:
        kept, _ = stratified_split(train.labels, 1 - config.fraction, config.split_seed)
        train = SubsetImages(train, kept)
    words = f"{config.name}: {len(train.labels)} training and {len(val.labels)} validation images{held_out}"
    return train, val, words
