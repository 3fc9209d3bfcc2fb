"""Fashion-MNIST: 70,000 grey images of 28x28 in ten classes (arXiv 1708.07747)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from vit_rpe.data.errors import DataNotFoundError
from vit_rpe.data.images.config import ImageData
from vit_rpe.data.sources.base import ArrayImages, DataSource
from vit_rpe.data.sources.fetch import fetch
from vit_rpe.data.sources.idx import read_idx
from vit_rpe.data.sources.statistics import FASHION_MNIST

__all__ = ["fashion_mnist"]

_CLASSES = (
    ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag"],
    "Ankle boot",
)
_DEFAULT = Path("data/fashion_mnist")
_DEBIAN = Path("/usr/share/datasets/fashion-mnist")  # where the package dataset-fashion-mnist puts it
_PAGE = "from https://github.com/zalandoresearch/fashion-mnist"
_FILES = {
    ("train", "images"): "train-images-idx3-ubyte",
    ("train", "labels"): "train-labels-idx1-ubyte",
    ("val", "images"): "t10k-images-idx3-ubyte",
    ("val", "labels"): "t10k-labels-idx1-ubyte",
}


def fashion_mnist(config: ImageData) -> DataSource:
    """The four IDX files from ``path`` (also as torchvision lays them out), or from Debian's folder."""
    root = Path(config.path) if config.path else _DEFAULT
    places = [root, root / "FashionMNIST" / "raw"] + ([] if config.path else [_DEBIAN])
    folder = next((place for place in places if _file(place, "train", "images")), None)
    if folder is None and config.download:
        folder = root / "FashionMNIST" / "raw"
        by_hand = f"{_PAGE} the files {', '.join(f'{name}.gz' for name in _FILES.values())} into {root}"
        fetch(folder, _download, what="Fashion-MNIST", by_hand=by_hand)
    if folder is None:
        raise DataNotFoundError(
            f"no Fashion-MNIST in {', '.join(map(str, places))}; --data.download true fetches it, and so does "
            "Debian's package dataset-fashion-mnist; or give --data.path"
        )
    mean, std = FASHION_MNIST
    return DataSource(
        train=_split(folder, "train"),
        val=_split(folder, "val"),
        class_names=[*_CLASSES[0], _CLASSES[1]],
        mean=mean,
        std=std,
        held_out="test",
    )


def _file(folder: Path, split: str, part: str) -> Path | None:
    name = _FILES[split, part]
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _split(folder: Path, split: str) -> ArrayImages:
    paths = {part: _file(folder, split, part) for part in ("images", "labels")}
    for part, path in paths.items():
        if path is None:
            raise DataNotFoundError(f"Fashion-MNIST in {folder} is incomplete: no {_FILES[split, part]}[.gz]")
    images = read_idx(paths["images"], axes=3)  # type: ignore[arg-type]
    labels = read_idx(paths["labels"], axes=1)  # type: ignore[arg-type]
    if len(images) != len(labels):
        raise DataNotFoundError(f"{paths['images']} has {len(images)} images but {len(labels)} labels")
    return ArrayImages(images, labels.astype(np.int64), str(paths["images"]))


def _download(workplace: Path) -> Path:
    from torchvision.datasets import FashionMNIST

    FashionMNIST(str(workplace), download=True)
    return workplace / "FashionMNIST" / "raw"
