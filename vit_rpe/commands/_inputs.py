"""What a model is shown: images or text that the user names, else those the model's run was validated on."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from vit_rpe.commands._model import NamedModel

if TYPE_CHECKING:
    from torch import Tensor

    from vit_rpe.data import DataBundle

__all__ = ["load_images", "named_images", "validation_text"]

SAMPLES = Path(__file__).parent.parent / "samples"
"""Five small images that come with the package."""
MOST_IMAGES = 4
"""Validation images shown where none are named."""


def named_images(words: Sequence[str]) -> list[Path]:
    """The image files named, folders replaced by the images in them; what is left out of these is said.

    Raises:
        ValueError: a path does not exist, or a folder holds no image.
    """
    from vit_rpe.data.account import Account
    from vit_rpe.data.images.files import image_files

    account = Account()
    files = image_files(words, account)
    if account.left_out:
        print(account.words(), file=sys.stderr)
    return files


def load_images(named: NamedModel, words: Sequence[str]) -> tuple[Tensor, Tensor, list[str]]:
    """The images as the model takes them and as a person sees them.

    Args:
        words: image files or folders; none for validation images of the model's run, of classes that differ.

    Returns:
        inputs (B, C, height, width) on the model's device, pixels of the same shape in 0..1, names.

    Raises:
        ValueError: no image, a path without one, or a model that takes text.
        OSError: a file that is not an image.
    """
    import torch

    from vit_rpe.data import image_treatment
    from vit_rpe.data.errors import printable

    treatment = image_treatment(named.treatment, named.title)
    files = named_images(words) if words else _instead_of_digits(named)
    if files:
        inputs = torch.stack([treatment(file) for file in files])
        names = [printable(file.name) for file in files]
    else:
        images, names = _validation_images(named)
        inputs = treatment.normalize(images)
    return inputs.to(named.device), treatment.denormalize(inputs), names


def validation_text(named: NamedModel) -> Tensor:
    """The first validation sample of the run of a model that takes text: token numbers (1, L)."""
    return _run_data(named, "--text TEXT").val.__getitems__([0]).inputs


def _instead_of_digits(named: NamedModel) -> list[Path]:
    """The five digits that come with the package, for a model of digits where scikit-learn, which has those, is not."""
    if named.data.get("name") != "digits" or find_spec("sklearn") is not None:
        return []
    print(
        f"scikit-learn and its digits are not installed: five digits of ours are shown, from {SAMPLES}", file=sys.stderr
    )
    return sorted(SAMPLES.glob("*.png"))


def _validation_images(named: NamedModel) -> tuple[Tensor, list[str]]:
    """uint8 (B, C, height, width), and names such as ``cat-17``: the class and the number of the sample."""
    import numpy as np

    bundle = _run_data(named, "--image PATH ...")
    labels = np.asarray(bundle.val.labels)
    _, first = np.unique(labels, return_index=True)
    spread = np.linspace(0, len(first) - 1, min(MOST_IMAGES, len(first))).astype(int)
    chosen = [int(index) for index in first[spread]]
    batch = bundle.val.__getitems__(chosen)
    if batch.bad:
        raise ValueError(f"cannot read the validation image {batch.bad[0][0]}: {batch.bad[0][1]}; use --image PATH ...")
    return batch.inputs, [f"{bundle.class_names[labels[index]]}-{index}" for index in chosen]


def _run_data(named: NamedModel, instead: str) -> DataBundle:
    """The data of the model's run."""
    if not named.data:
        raise ValueError(f"no image given, and {named.title} comes without data of its own: use {instead}")
    from vit_rpe.data import DataNotFoundError, other_data, rebuild_data

    try:
        return rebuild_data(other_data(named.data), named.treatment)
    except DataNotFoundError as error:
        raise ValueError(f"the data of the run are not here ({error}): use {instead}") from error
