"""All images of a data set in a few compressed files, exact to the pixel, to carry to another machine.

Images of one size are put below one another in sheets, and each sheet is stored as lossless WebP in a safetensors file:
CIFAR-10 takes about 100 MB, in parts small enough to send one at a time. Nothing of it is run when it is read.

Legend: N images, H and W pixels, C channels.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file

from vit_rpe.data import Samples

PART_BYTES = 48 * 2**20
TALLEST = 16_383  # pixels of a WebP file along one side


class Split(NamedTuple):
    """``images``: uint8 (N, H, W, C), C = 3; ``labels``: int64 (N,)."""

    images: np.ndarray
    labels: np.ndarray


def split_of(samples: Samples, *, chunk: int = 1000) -> Split:
    """The images of a data set as it prepares them, without augmentation."""
    batches = [samples.__getitems__(range(at, min(at + chunk, len(samples)))) for at in range(0, len(samples), chunk)]
    images = torch.cat([batch.inputs for batch in batches])
    if images.shape[1] == 1:
        images = images.expand(-1, 3, -1, -1)
    return Split(
        images.permute(0, 2, 3, 1).contiguous().numpy(), torch.cat([batch.labels for batch in batches]).numpy()
    )


def write_packed(split: Split, folder: Path, name: str, class_names: list[str]) -> list[Path]:
    """Write ``NAME-0.safetensors`` and so on, each at most ``PART_BYTES`` and one sheet."""
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    first, sheets, size = 0, [], 0
    for stop, sheet in _sheets(split.images):
        sheets.append(sheet)
        size += len(sheet)
        if size >= PART_BYTES or stop == len(split.images):
            written.append(folder / f"{name}-{len(written)}.safetensors")
            _write_part(written[-1], sheets, Split(*(part[first:stop] for part in split)), class_names, first)
            first, sheets, size = stop, [], 0
    return written


def _sheets(images: np.ndarray) -> Iterator[tuple[int, bytes]]:
    count, height = len(images), images.shape[1]
    per_sheet = TALLEST // height
    for start in range(0, count, per_sheet):
        stop = min(start + per_sheet, count)
        buffer = io.BytesIO()
        Image.fromarray(images[start:stop].reshape(-1, *images.shape[2:])).save(
            buffer, "webp", lossless=True, exact=True
        )
        yield stop, buffer.getvalue()


def _write_part(path: Path, sheets: list[bytes], split: Split, class_names: list[str], first: int) -> None:
    tensors = {
        "sheets": torch.frombuffer(bytearray(b"".join(sheets)), dtype=torch.uint8),
        "lengths": torch.tensor([len(sheet) for sheet in sheets]),
        "labels": torch.from_numpy(split.labels),
    }
    metadata = {
        "first": str(first),
        "height": str(split.images.shape[1]),
        "classes": "\n".join(class_names),
        "sha256": hashlib.sha256(split.images.tobytes()).hexdigest(),
    }
    save_file(tensors, path, metadata)


def read_packed(folder: str | Path, name: str) -> tuple[Split, list[str]]:
    """All images that :func:`write_packed` wrote, and the names of their classes.

    Raises:
        ValueError: no such files, one in the middle is missing, or pixels that are not those that were written.
    """
    paths = sorted(Path(folder).glob(f"{name}-*.safetensors"), key=lambda path: int(path.stem.rpartition("-")[2]))
    if not paths:
        raise ValueError(f"{folder} holds no {name}-0.safetensors: write it with vit-rpe speedrun --pack")
    parts: list[Split] = []
    classes: list[str] = []
    for path in paths:
        with safe_open(path, "pt") as file:
            about = file.metadata()
            sheets, lengths, labels = (file.get_tensor(key) for key in ("sheets", "lengths", "labels"))
        expected = sum(len(part.labels) for part in parts)
        if int(about["first"]) != expected:
            raise ValueError(f"{path} begins with image {about['first']}, expected {expected}: a part is missing")
        height, data = int(about["height"]), sheets.numpy().tobytes()
        ends = lengths.cumsum(0).tolist()
        starts = [0, *ends[:-1]]
        opened = [
            np.asarray(Image.open(io.BytesIO(data[a:b])).convert("RGB")) for a, b in zip(starts, ends, strict=True)
        ]
        images = np.concatenate(opened)
        images = images.reshape(-1, height, *images.shape[1:])
        if hashlib.sha256(images.tobytes()).hexdigest() != about["sha256"]:
            raise ValueError(f"{path} does not give the pixels that were packed")
        parts.append(Split(images, labels.numpy()))
        classes = about["classes"].split("\n")
    return Split(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True))), classes
