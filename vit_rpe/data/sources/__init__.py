"""The table of data sources: what reads each, which options it takes, and what its data become.

A new source is one new file beside this one and one row here. ``options`` are those of its config that not every
source has (``path``, ``download``, ``val_fraction`` ...): what any row declares is refused where it is not declared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from vit_rpe.data.bundle import DataBundle
from vit_rpe.data.images.build import build_images
from vit_rpe.data.images.config import ImageData
from vit_rpe.data.sources.base import ArrayImages, DataSource, FileImages, LabelledImages, SubsetImages
from vit_rpe.data.sources.cifar import cifar10, cifar100
from vit_rpe.data.sources.digits import digits
from vit_rpe.data.sources.fashion_mnist import fashion_mnist
from vit_rpe.data.sources.folder import folder, imagenet
from vit_rpe.data.sources.hub import hf, parquet
from vit_rpe.data.sources.shards import webdataset
from vit_rpe.data.text.build import build_classes, build_language
from vit_rpe.data.text.config import TextData
from vit_rpe.data.text.corpus import corpus
from vit_rpe.data.treatment import Request

__all__ = ["SOURCES", "ArrayImages", "DataSource", "FileImages", "LabelledImages", "Source", "SubsetImages"]


class Source(NamedTuple):
    """A row: ``load`` finds the data that ``config`` names, ``build`` makes samples of what it found."""

    config: type[ImageData] | type[TextData]
    load: Callable[[Any], Any]
    build: Callable[[Any, Any, Request], DataBundle]
    options: frozenset[str]


def images(load: Callable[[ImageData], DataSource], *options: str) -> Source:
    """A source of images."""
    return Source(ImageData, load, build_images, frozenset(options))


_FILES = ("on_bad_image", "max_bad_images", "max_pixels", "background")  # of images that are decoded from files
_ROWS = ("image_key", "label_key")
SOURCES: dict[str, Source] = {
    "digits": images(digits, "val_fraction"),
    "fashion_mnist": images(fashion_mnist, "path", "download"),
    "cifar10": images(cifar10, "path", "download"),
    "cifar100": images(cifar100, "path", "download"),
    "imagenet": images(imagenet, "path", *_FILES),
    "folder": images(folder, "path", "val_path", "val_fraction", *_FILES),
    "hf": images(hf, "path", "val_fraction", *_FILES, *_ROWS),
    "parquet": images(parquet, "path", "val_path", "val_fraction", *_FILES, *_ROWS),
    "webdataset": images(webdataset, "path", "val_path", "val_fraction", *_FILES),
    "text": Source(
        TextData,
        corpus,
        build_language,
        frozenset(["path", "val_path", "val_fraction", "windows", "val_characters"]),
    ),
    "text_classes": Source(TextData, corpus, build_classes, frozenset(["path", "val_path", "val_fraction"])),
}
