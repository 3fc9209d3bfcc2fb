"""The data sources, one function of a ``DataConfig`` each; a new source is one new file and one line here."""

from __future__ import annotations

from collections.abc import Callable

from ..config import DataConfig
from .base import ArrayImages, DataSource, FileImages, LabelledImages, SubsetImages
from .digits import digits

__all__ = ["SOURCES", "ArrayImages", "DataSource", "FileImages", "LabelledImages", "SubsetImages"]

SOURCES: dict[str, Callable[[DataConfig], DataSource]] = {
    "digits": digits,
}
