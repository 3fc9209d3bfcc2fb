"""From the options of a data source to its training and validation samples."""

from __future__ import annotations

from typing import Any

from vit_rpe.data.bundle import DataBundle
from vit_rpe.data.config import check_options
from vit_rpe.data.images.preprocessing import Preprocessing
from vit_rpe.data.options import DataOptions
from vit_rpe.data.sources import SOURCES
from vit_rpe.data.text.treatment import TextTreatment
from vit_rpe.data.treatment import Request, Treatment

__all__ = ["build_data", "read_treatment", "rebuild_data"]


def build_data(config: DataOptions, *, img_size: tuple[int, int] | None, in_chans: int | None, seed: int) -> DataBundle:
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
    check_options(config)
    return _build(config, Request(seed, img_size=img_size, in_chans=in_chans))


def rebuild_data(config: DataOptions, treatment: Treatment, *, seed: int = 0) -> DataBundle:
    """The data of ``config`` for a trained model: images with its own treatment, whatever their source would
    take, and without augmentation in the training split either; or text with its vocabulary and length.

    Raises:
        DataNotFoundError, ValueError: as :func:`build_data`.
    """
    check_options(config)
    if treatment.kind != config.kind:
        raise ValueError(f"data.name={config.name} gives {config.kind}, the model takes {treatment.kind}")
    return _build(config, Request(seed, treatment=treatment))


def _build(config: DataOptions, request: Request) -> DataBundle:
    source = SOURCES[config.name]
    return source.build(source.load(config), config, request)


def read_treatment(values: dict[str, Any]) -> Preprocessing | TextTreatment:
    """How samples are prepared, read back from what ``to_dict`` of a treatment wrote; without a ``kind``, of images.

    Raises:
        ValueError: unknown keys.
    """
    reader = TextTreatment if values.get("kind") == TextTreatment.kind else Preprocessing
    return reader.from_dict(values)
