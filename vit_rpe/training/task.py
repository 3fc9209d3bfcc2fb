"""What a run learns, as far as it matters outside of the model and the data: how results are judged and named.

Loss and loop are the same for all: a batch is (inputs, labels), and the model gives one row of logits a label, (B, C)
for labels (B,) and (B, L, C) for labels (B, L). B batch, L tokens, C classes or characters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vit_rpe.data import Treatment
from vit_rpe.training.metrics import Evaluation

__all__ = ["Task", "task_of"]


@dataclass(frozen=True)
class Task:
    """``unit``: what is counted, one label each; ``score``: of a result, higher is better; ``words``: a score for
    people, of the split that is named; ``more``: numbers a result has beside loss and accuracy, by name.
    """

    unit: str
    score: Callable[[Evaluation], float]
    words: Callable[[float, str], str]
    more: Callable[[Evaluation], dict[str, float]]


def _accuracy_words(score: float, split: str) -> str:
    return f"{split} accuracy: {100 * score:.1f} %"


def _bits_words(score: float, split: str) -> str:
    return f"{split} bits per character: {-score:.3f}"


IMAGES = Task("images", lambda result: result.top1, _accuracy_words, lambda result: {})
PASSAGES = Task("passages", lambda result: result.top1, _accuracy_words, lambda result: {})
LANGUAGE = Task(
    "characters", lambda result: -result.bits, _bits_words, lambda result: {"bits_per_character": result.bits}
)


TASKS = {task.unit: task for task in (IMAGES, PASSAGES, LANGUAGE)}


def task_of(treatment: Treatment) -> Task:
    """The task that data treated like this stand for."""
    return TASKS[treatment.unit]
