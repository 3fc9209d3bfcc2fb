"""Random weights that matter, for comparisons of whole models."""

from __future__ import annotations

import re
from typing import Any

import torch

POSITION = re.compile(r"table|freqs|rel_pos|attention_bias|cpb_mlp|meta_mlp|rpb_mlp")


def randomize(model: Any, seed: int) -> None:
    """Fill every parameter with values that matter: vectors from N(0, 1/4), matrices scaled by width, and position four
    times as large, so that leaving it out would be seen."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            position = POSITION.search(key) is not None
            table = parameter.ndim < 2 or (position and "mlp" not in key)
            spread = (0.5 if table else parameter[0].numel() ** -0.5) * (4 if position else 1)
            parameter.normal_(0.0, spread, generator=generator)
