"""Random weights that matter, for comparisons of whole models."""

from __future__ import annotations

from typing import Any

__all__ = ["randomize"]


def randomize(model: Any, seed: int) -> None:
    """Fill every parameter with values that matter: vectors and tables from N(0, 1/4), matrices scaled by width."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            tables = ("table", "freqs", "rel_pos_h", "rel_pos_w", "attention_biases")
            large = parameter.ndim < 2 or any(name in key for name in tables)
            spread = 0.5 if large else parameter[0].numel() ** -0.5
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * spread)
