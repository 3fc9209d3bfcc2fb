"""The loss against plain loops over samples and classes."""

from __future__ import annotations

import math

import pytest
import torch

from vit_rpe.training.config.schema import DistillConfig, TrainConfig
from vit_rpe.training.losses import classification_loss, distillation_loss


def _log_softmax(row: list[float]) -> list[float]:
    top = max(row)
    total = math.log(sum(math.exp(value - top) for value in row)) + top
    return [value - total for value in row]


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("loss", ["cross_entropy", "bce"])
def test_classification(loss: str, smoothing: float) -> None:
    logits, labels = 3 * torch.randn(5, 4), torch.tensor([3, 0, 1, 1, 2])
    expected = 0.0
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        target = [(1 - smoothing) * (c == label) + smoothing / 4 for c in range(4)]
        if loss == "cross_entropy":
            expected -= sum(t * value for t, value in zip(target, _log_softmax(row), strict=True)) / 5
        else:
            chances = [1 / (1 + math.exp(-value)) for value in row]
            expected -= sum(
                t * math.log(p) + (1 - t) * math.log(1 - p) for t, p in zip(target, chances, strict=True)
            ) / (5 * 4)
    config = TrainConfig(loss=loss, label_smoothing=smoothing)
    assert float(classification_loss(logits, labels, config)) == pytest.approx(expected, rel=1e-5)


def test_mixed_targets_are_taken_as_they_are() -> None:
    logits, target = torch.randn(3, 4), torch.rand(3, 4).softmax(dim=1)
    config = TrainConfig(label_smoothing=0.5)
    expected = -(target * logits.log_softmax(dim=1)).sum(dim=1).mean()
    torch.testing.assert_close(classification_loss(logits, target, config), expected)


def test_low_precision_logits_are_raised() -> None:
    logits, labels = torch.randn(6, 5).bfloat16(), torch.randint(5, (6,))
    loss = classification_loss(logits, labels, TrainConfig())
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, classification_loss(logits.float(), labels, TrainConfig()))


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_distillation_from_a_distribution(temperature: float) -> None:
    ours, theirs = 2 * torch.randn(4, 3), 2 * torch.randn(4, 3)
    expected = 0.0
    for mine, other in zip(ours.tolist(), theirs.tolist(), strict=True):
        p = _log_softmax([value / temperature for value in other])
        q = _log_softmax([value / temperature for value in mine])
        expected += sum(math.exp(a) * (a - b) for a, b in zip(p, q, strict=True)) * temperature**2 / 4
    config = DistillConfig(temperature=temperature)
    assert float(distillation_loss(ours, theirs, config)) == pytest.approx(expected, rel=1e-5)


def test_distillation_from_decisions() -> None:
    ours, theirs = torch.randn(4, 3), torch.randn(4, 3)
    expected = (
        -sum(_log_softmax(row)[int(other.argmax())] for row, other in zip(ours.tolist(), theirs, strict=True)) / 4
    )
    assert float(distillation_loss(ours, theirs, DistillConfig(hard=True))) == pytest.approx(float(expected), rel=1e-5)
