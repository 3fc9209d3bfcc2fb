"""Continuing a sequence token by token, with a key/value cache.

Legend: B batch, T tokens of the prompt, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from vit_rpe.checks import check_count, check_within
from vit_rpe.encodings import PositionEncoding
from vit_rpe.models.sequence.io import check_ids


def check_decoding(encodings: Iterable[PositionEncoding]) -> None:
    """Raise ValueError for a position encoding that cannot decode step by step."""
    for encoding in encodings:
        if not encoding.card.supports_kv_cache:
            raise ValueError(f"rpe={encoding.name!r} cannot decode step by step: {encoding.card.extrapolation}")


def check_prompt(prompt: Tensor, num_tokens: int, vocab_size: int, *, temperature: float, top_k: int | None) -> None:
    """Raise ValueError for a prompt that is empty or has unknown ids, or for options out of their range."""
    if prompt.ndim != 2 or prompt.shape[1] == 0:
        raise ValueError(f"the prompt must be (batch, tokens) with at least one token, got {tuple(prompt.shape)}")
    check_ids(prompt, vocab_size)
    check_count("num_tokens", num_tokens, least=0)
    check_within("temperature", temperature, 0, math.inf)
    if top_k is not None:
        check_count("top_k", top_k)


@torch.no_grad()
def continue_tokens(
    next_logits: Callable[[Tensor], Tensor],
    prompt: Tensor,
    num_tokens: int,
    *,
    temperature: float,
    top_k: int | None,
    generator: torch.Generator | None,
) -> Tensor:
    """Add tokens to a prompt (B, T), one at a time: (B, T + num_tokens).

    Args:
        next_logits: from the newest tokens (B, n), all before them remembered, to the logits (B, n, V) behind each.
        temperature, top_k, generator: as in :meth:`SequenceTransformer.generate`.
    """
    tokens, newest = prompt, prompt
    for _ in range(num_tokens):
        newest = _draw(next_logits(newest)[:, -1].float(), temperature, top_k, generator)
        tokens = torch.cat([tokens, newest], dim=1)
    return tokens


def _draw(logits: Tensor, temperature: float, top_k: int | None, generator: torch.Generator | None) -> Tensor:
    """Next tokens (B, 1) from logits (B, V)."""
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    if top_k is not None:
        least = logits.topk(min(top_k, logits.shape[-1]), dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < least, float("-inf"))
    return torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)
