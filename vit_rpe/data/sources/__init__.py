"""The data sources, one function of a ``DataConfig`` each; a new source is one new file and one line here."""

from __future__ import annotations

from collections.abc import Callable

from vit_rpe.data.config import DataConfig
from vit_rpe.data.sources.base import ArrayImages, DataSource, FileImages, LabelledImages, SubsetImages
from vit_rpe.data.sources.cifar import cifar10, cifar100
from vit_rpe.data.sources.digits import digits
from vit_rpe.data.sources.fashion_mnist import fashion_mnist
from vit_rpe.data.sources.folder import folder, imagenet
from vit_rpe.data.sources.hub import hf, parquet
from vit_rpe.data.sources.shards import webdataset

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
