"""The training loss: what the logits are compared with.

B batch, C classes.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from vit_rpe.training.config.schema import DistillConfig, TrainConfig

__all__ = ["classification_loss", "distillation_loss", "soft_targets"]


def soft_targets(labels: Tensor, *, num_classes: int, smoothing: float) -> Tensor:
    """Labels (B,) int64 to distributions (B, C): ``smoothing`` of the mass is spread evenly over all classes."""
    target = F.one_hot(labels, num_classes).float()
    return target * (1 - smoothing) + smoothing / num_classes


def classification_loss(logits: Tensor, target: Tensor, config: TrainConfig) -> Tensor:
    """Mean loss over a batch.

    Args:
        logits: (B, C); computed in float32 at least.
        target: labels (B,) int64, or distributions (B, C) that mixup and cutmix made (smoothed by those already).
        config: ``loss`` and ``label_smoothing``.

    Returns:
        A scalar: softmax cross-entropy, or binary cross-entropy averaged over the classes.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if target.ndim == 1:
        target = soft_targets(target, num_classes=logits.shape[1], smoothing=config.label_smoothing)
    if config.loss == "bce":
        return F.binary_cross_entropy_with_logits(logits, target)
    return F.cross_entropy(logits, target)


def distillation_loss(logits: Tensor, teacher_logits: Tensor, config: DistillConfig) -> Tensor:
    """How far the student is from the teacher ("Distilling the Knowledge in a Neural Network", 1503.02531, sec. 2).

    Args:
        logits: (B, C), the student's.
        teacher_logits: (B, C), without gradient.
        config: ``hard`` compares with the teacher's decision (DeiT, 2012.12877, eq. 3), otherwise with its distribution
            at ``temperature`` T: T^2 times the Kullback-Leibler divergence.

    Returns:
        A scalar, the mean over the batch.
    """
    logits, teacher_logits = logits.float(), teacher_logits.float()
    if config.hard:
        return F.cross_entropy(logits, teacher_logits.argmax(dim=1))
    heat = config.temperature
    student, teacher = (F.log_softmax(values / heat, dim=1) for values in (logits, teacher_logits))
    return F.kl_div(student, teacher, log_target=True, reduction="batchmean") * heat**2
