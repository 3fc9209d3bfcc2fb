"""The data sources, one function of a ``DataConfig`` each; a new source is one new file and one line here."""

from __future__ import annotations

from collections.abc import Callable

from ..config import DataConfig
from .base import ArrayImages, DataSource, FileImages, LabelledImages, SubsetImages
from .cifar import cifar10, cifar100
from .digits import digits
from .fashion_mnist import fashion_mnist
from .folder import folder, imagenet
from .hub import hf, parquet
from .shards import webdataset

__all__ = ["SOURCES", "ArrayImages", "DataSource", "FileImages", "LabelledImages", "SubsetImages"]

SOURCES: dict[str, Callable[[DataConfig], DataSource]] = {
    "digits": digits,
    "fashion_mnist": fashion_mnist,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "imagenet": imagenet,
    "folder": folder,
    "hf": hf,
    "parquet": parquet,
    "webdataset": webdataset,
}
