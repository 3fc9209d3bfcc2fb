"""Everything a run needs to know about its data."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from vit_rpe.data.account import Account, BadImages
from vit_rpe.data.batch import Samples
from vit_rpe.data.images.preprocessing import Preprocessing, image_treatment
from vit_rpe.data.treatment import Treatment

__all__ = ["DataBundle"]


@dataclass(frozen=True)
class DataBundle:
    """Training and validation samples, their classes and their treatment.

    ``split`` says in words what is trained and what is validated on; ``held_out`` what ``val`` is: ``"test"`` for a
    published or named test set, else ``"validation"``; ``account`` what was met, taken and left out. ``bad_images``
    fills while loaders run.
    """

    train: Samples
    val: Samples
    class_names: list[str]
    treatment: Treatment
    bad_images: BadImages
    split: str
    held_out: str = "validation"
    account: Account = field(default_factory=Account)

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def preprocessing(self) -> Preprocessing:
        """The treatment of images. Raises ``ValueError`` where the data are text."""
        return image_treatment(self.treatment, "the model of these data")

    def to_device_batch(self, inputs: Tensor, device: torch.device | str) -> Tensor:
        """uint8 (B, C, H, W) from a loader to normalised float32 on ``device``; token numbers (B, L) to
        int64.
        """
        return self.treatment.normalize(inputs.to(device, non_blocking=True))

    def check_labels(self, num_classes: int) -> None:
        """Raise ``ValueError`` if a label does not fit a model with ``num_classes`` outputs."""
        for split, samples in (("training", self.train), (self.held_out, self.val)):
            labels = np.asarray(samples.labels)
            if len(labels) and (labels.min() < 0 or labels.max() >= num_classes):
                raise ValueError(
                    f"{split} labels are {labels.min()}..{labels.max()}, "
                    f"the model has num_classes={num_classes} (expected 0..{num_classes - 1})"
                )
