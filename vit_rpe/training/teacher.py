"""The teacher of a distillation: any timm model, or a run of ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import timm
import timm.data
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from vit_rpe.checks import closest
from vit_rpe.data import Preprocessing, Treatment, image_treatment
from vit_rpe.training.checkpoint.belonging import check_classes
from vit_rpe.training.checkpoint.checkpoint import load_checkpoint
from vit_rpe.training.config.schema import DistillConfig

__all__ = ["Teacher", "build_teacher"]


class Teacher:
    """A frozen model that sees the student's batches at its own size and normalisation.

    Args:
        model: images (B, channels, height, width) to logits (B, C).
        mean, std: the teacher's normalisation, one number per channel.
        img_size: (height, width) the teacher takes.
        student: the treatment of the student's images.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        img_size: tuple[int, int],
        student: Preprocessing,
    ) -> None:
        self.model = model.eval().requires_grad_(False)
        self.img_size = img_size
        ours_mean, ours_std = torch.tensor(student.mean), torch.tensor(student.std)
        self._scale = (ours_std / torch.tensor(std)).view(-1, 1, 1)
        self._shift = ((ours_mean - torch.tensor(mean)) / torch.tensor(std)).view(-1, 1, 1)

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        """Student images (B, channels, height, width), normalised its way, to the teacher's logits (B, C)."""
        images = images * self._scale.to(images) + self._shift.to(images)
        if tuple(images.shape[-2:]) != self.img_size:
            images = F.interpolate(images, size=self.img_size, mode="bicubic", antialias=True)
        return self.model(images)


def _per_channel(values: tuple[float, ...], channels: int) -> tuple[float, ...]:
    """Statistics of colour images averaged for a model of grey ones, as timm sums its first weights over colours."""
    return tuple(values) if len(values) == channels else (sum(values) / len(values),) * channels


def _load(model: nn.Module, file: Path) -> None:
    """Load a file of weights without running code from it."""
    try:
        if file.suffix == ".safetensors":
            weights: dict[str, Any] = dict(load_file(file))
        else:
            weights = torch.load(file, map_location="cpu", weights_only=True)
        model.load_state_dict(weights.get("state_dict", weights))
    except Exception as error:
        raise ValueError(f"cannot load the teacher's weights from {file}: {error}") from error


def build_teacher(
    config: DistillConfig, *, class_names: Sequence[str], student: Treatment, device: torch.device
) -> Teacher | None:
    """The teacher of a config; ``None`` if it names none.

    Raises:
        ValueError: an unknown name, weights that do not fit, or classes that are not the student's.
    """
    if config.teacher is None:
        return None
    num_classes = len(class_names)
    student = image_treatment(student, f"train.distill.teacher {config.teacher!r} teaches on images; the student")
    if Path(config.teacher).exists():
        loaded = load_checkpoint(config.teacher)
        model, treatment = loaded.model, loaded.preprocessing
        check_classes(class_names, loaded.class_names, of="the data", by=f"the teacher {config.teacher}")
        mean, std, img_size = treatment.mean, treatment.std, treatment.img_size
    else:
        if not timm.is_model(config.teacher):
            hint = closest(config.teacher, timm.list_models())
            raise ValueError(f"train.distill.teacher {config.teacher!r} is no folder and no timm model{hint}")
        if not config.pretrained and config.checkpoint is None:
            raise ValueError("a teacher given by name needs train.distill.pretrained or train.distill.checkpoint")
        size: dict[str, Any] = {"num_classes": num_classes, "in_chans": student.in_chans}
        model = timm.create_model(config.teacher, pretrained=config.pretrained, **size)
        if config.checkpoint is not None:
            _load(model, Path(config.checkpoint))
        cfg = timm.data.resolve_model_data_config(model)
        mean, std = (_per_channel(cfg[key], student.in_chans) for key in ("mean", "std"))
        img_size = tuple(cfg["input_size"][1:])
    classes = getattr(model, "num_classes", num_classes)
    if classes != num_classes or len(mean) != student.in_chans:
        raise ValueError(
            f"the teacher has {classes} classes and {len(mean)} channels, "
            f"the data have {num_classes} and {student.in_chans}"
        )
    return Teacher(model.to(device), mean=mean, std=std, img_size=img_size, student=student)
