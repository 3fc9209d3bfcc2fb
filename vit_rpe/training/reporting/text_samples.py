"""What a trained language model writes: continuations of held-out text, for the end of a run."""

from __future__ import annotations

from textwrap import indent

import torch

from vit_rpe.data import text_treatment
from vit_rpe.training.session import Session
from vit_rpe.training.task import LANGUAGE

__all__ = ["written_samples"]

_NUM_SAMPLES, _NUM_CHARACTERS, _TEMPERATURE = 2, 240, 0.8


def written_samples(session: Session) -> list[str]:
    """Continuations of the first half of some validation windows, drawn with a fixed seed, one text each.

    A model with learned absolute positions stops at its native length; one that cannot decode gives the reason.
    """
    if session.task is not LANGUAGE:
        return []
    treatment, samples = text_treatment(session.bundle.treatment, "the model"), session.bundle.val
    model, device = session.evaluated.eval(), session.accelerator.device
    places = [number * len(samples) // _NUM_SAMPLES for number in range(_NUM_SAMPLES)]
    half = max(1, treatment.length // 2)
    prompts = samples.__getitems__(places).inputs[:, :half].to(device)
    count = treatment.length - half if getattr(model, "pos_embed", None) is not None else _NUM_CHARACTERS
    generator = torch.Generator(device).manual_seed(0)
    try:
        tokens = model.generate(prompts, count, temperature=_TEMPERATURE, generator=generator)  # type: ignore[operator]
    except ValueError as error:
        return [f"no samples: {error}"]
    return [
        f"sample        (after the bar, temperature {_TEMPERATURE})\n"
        + indent(f"{treatment.decode(row[:half])}\u2503{treatment.decode(row[half:])}", "    ", lambda line: True)
        for row in tokens
    ]
