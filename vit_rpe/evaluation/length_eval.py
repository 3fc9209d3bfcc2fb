"""How a trained language model does on contexts shorter and longer than those it was trained on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from vit_rpe.checks import check_count
from vit_rpe.data import other_data, text_treatment
from vit_rpe.data.text.build import validation_text
from vit_rpe.data.text.config import text_data
from vit_rpe.data.text.windows import evaluation_windows
from vit_rpe.position.devices import find_device
from vit_rpe.training.checkpoint.checkpoint import load_checkpoint
from vit_rpe.training.metrics import evaluate

__all__ = ["bits_by_length"]


def bits_by_length(
    checkpoint: str | Path,
    lengths: Sequence[int],
    *,
    device: str | torch.device = "cpu",
    data_path: str | None = None,
    change: Callable[[nn.Module, int], None] = lambda model, length: None,
) -> dict[int, float]:
    """Bits per character of held-out text cut into windows of each length; every length scores the same characters.

    Args:
        lengths: each must divide 8 native lengths. The native one gives what ``evaluate`` gives.
        data_path: other text than the model's own.
        change: called with the freshly loaded model and the length before each evaluation.

    Returns:
        Bits by length, without the lengths the model has no positions for.

    Raises:
        ValueError: no language model, a length below 1, no such device, or too little text.
    """
    for length in lengths:
        check_count("a length", length)
    device = find_device(device)
    loaded = load_checkpoint(checkpoint)
    treatment = text_treatment(loaded.treatment, f"the model in {loaded.folder}")
    config = text_data(other_data(loaded.info.data, path=data_path))
    if treatment.task != "language":
        raise ValueError(f"{loaded.folder} holds no language model")
    text = validation_text(config, treatment)
    results = {}
    for length in lengths:
        windows = evaluation_windows(text, length, native=treatment.length, characters=config.val_characters)
        batch = max(1, (config.eval_batch_size or config.batch_size) * treatment.length // length)
        model = load_checkpoint(checkpoint).model
        change(model, length)
        held = getattr(model, "pos_embed", None)
        if held is not None and held.shape[1] < length:
            continue
        results[length] = evaluate(
            model.to(device),
            DataLoader(windows, batch_size=batch, collate_fn=_pair),
            prepare=lambda tokens: tokens.to(device),
            num_classes=len(treatment.characters),
            device=device,
        ).bits
    return results


def _pair(batch: Any) -> tuple[Tensor, Tensor]:
    return batch.inputs, batch.labels
