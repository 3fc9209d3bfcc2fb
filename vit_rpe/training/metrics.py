"""Metrics over a set of labelled samples, by torchmetrics; several processes count every sample once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchmetrics import MetricCollection, SumMetric
from torchmetrics.classification import (
    MulticlassAccuracy,
    MulticlassCalibrationError,
    MulticlassConfusionMatrix,
)

__all__ = ["Evaluation", "NoAnswerError", "evaluate"]


class NoAnswerError(ValueError):
    """What a model answers is not a number."""


@dataclass(frozen=True)
class Evaluation:
    """Results over ``count`` labels.

    ``loss`` is the plain cross-entropy; ``top1``, ``top5`` (the best ``min(5, classes)``) and ``calibration_error``
    (15 bins, l1) lie between 0 and 1. ``confusion`` (C, C) counts true class by predicted class, if asked for.
    """

    count: int
    loss: float
    top1: float
    top5: float
    calibration_error: float
    confusion: Tensor | None = None

    @property
    def bits(self) -> float:
        """The loss in bits: per character, for a language model over characters."""
        return self.loss / math.log(2)

    @property
    def per_class(self) -> list[float]:
        """Accuracy of each class; NaN for a class without samples."""
        assert self.confusion is not None
        return (self.confusion.diag() / self.confusion.sum(dim=1)).tolist()


@torch.no_grad()
def evaluate(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    *,
    prepare: Callable[[Tensor], Tensor],
    num_classes: int,
    device: torch.device,
    autocast: Callable[[], AbstractContextManager] = nullcontext,
    confusion: bool = False,
    calls: int = 0,
) -> Evaluation:
    """Evaluate a model in eval mode; the mode of each of its modules is put back afterwards.

    Args:
        model: one row of logits a label, (B, C), or (B, L, C) for L labels a sample.
        batches: inputs as the loader gives them, and labels int64 (B,) or (B, L); this process's share.
        prepare: brings a batch of inputs to the device, as the model takes them.
        num_classes: C.
        device: where the model is.
        autocast: context for mixed precision.
        confusion: also count the confusion matrix.
        calls: call the model at least this often, without counting, because other processes of a sharded model do.

    Raises:
        ValueError: fewer than two classes, a label that is none of them, or no sample at all.
        NoAnswerError: an answer that is not a number, which would count as the first class.
    """
    if num_classes < 2:
        raise ValueError(f"nothing can be evaluated with {num_classes} class: at least 2 are needed")
    scores = MetricCollection(
        {
            "top1": MulticlassAccuracy(num_classes, average="micro"),
            "top5": MulticlassAccuracy(num_classes, average="micro", top_k=min(5, num_classes)),
            "calibration_error": MulticlassCalibrationError(num_classes),
        },
        compute_groups=False,
    ).to(device)
    loss, count, without_answer = (SumMetric(nan_strategy="disable").to(device) for _ in range(3))
    table = MulticlassConfusionMatrix(num_classes).to(device) if confusion else None
    made = 0
    count.update(0)  # so that no samples are a number too
    without_answer.update(0)
    with in_eval_mode(model):
        for images, labels in batches:
            made += 1
            _check_labels(labels, num_classes)
            labels = labels.to(device).flatten()
            with autocast():
                logits = model(prepare(images))
            logits = logits.float().flatten(0, -2)
            loss.update(F.cross_entropy(logits, labels, reduction="sum"))
            count.update(len(labels))
            without_answer.update(logits.isnan().any(dim=1).sum())
            probabilities = logits.softmax(dim=1)
            scores.update(probabilities, labels)
            if table is not None:
                table.update(probabilities, labels)
        for _ in range(calls - made):
            model(prepare(images))
    if not int(count.compute()):
        raise ValueError("nothing was evaluated: there is no sample, or none that can be read")
    if int(without_answer.compute()):
        raise NoAnswerError(
            f"the model's answer is not a number for {int(without_answer.compute())} of {int(count.compute())} labels: "
            "accuracy would mean nothing"
        )
    values = {name: float(value) for name, value in scores.compute().items()}
    return Evaluation(
        count=int(count.compute()),
        loss=float(loss.compute() / count.compute()),
        confusion=None if table is None else table.compute().cpu(),
        **values,
    )


@contextmanager
def in_eval_mode(model: nn.Module) -> Iterator[None]:
    """Eval mode within; afterwards, also after an error, each module is in the mode it had: parts may be frozen."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _check_labels(labels: Tensor, num_classes: int) -> None:
    """Raise ``ValueError`` for labels that are no class, such as the -100 that torch's losses ignore."""
    if labels.is_cpu and labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < num_classes:
        raise ValueError(
            f"labels lie between {int(labels.min())} and {int(labels.max())}, the model has the classes 0 to "
            f"{num_classes - 1}; leave samples without a label out"
        )
