"""Continuing a sequence token by token, with a key/value cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from vit_rpe.checks import check_count
from vit_rpe.encodings import find_encodings
from vit_rpe.layers.kv_cache import DecodingCache
from vit_rpe.models.sequence.io import check_ids

if TYPE_CHECKING:
    from vit_rpe.models.sequence.model import SequenceTransformer


def new_cache(model: SequenceTransformer, context: int | None) -> DecodingCache:
    """An empty cache; see :meth:`SequenceTransformer.new_cache`."""
    if not model.causal:
        raise ValueError("a key/value cache needs causal=True: otherwise later tokens change the earlier ones")
    for _, encoding in find_encodings(model):
        if not encoding.card.supports_kv_cache:
            raise ValueError(f"rpe={encoding.name!r} cannot decode step by step: {encoding.card.extrapolation}")
    if context is not None:
        check_count("context", context)
    return DecodingCache(len(model.blocks), model.length if context is None else context)


@torch.no_grad()
def generate(
    model: SequenceTransformer,
    prompt: Tensor,
    num_tokens: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    context: int | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Continue token ids.

    Args:
        model: a causal language model; its mode (train or eval) is left as it is.
        prompt: int64 (B, T), at least one token.
        num_tokens: how many to add.
        temperature: divides the logits; 0 takes the most likely token.
        top_k: draw from the k most likely tokens only; None for all.
        context: the context limit; default: the native length, or all tokens where that is more.
        generator: for the draws.

    Returns:
        int64 (B, T + num_tokens), the prompt first.

    Raises:
        ValueError: no language model, an empty prompt, ids outside of the vocabulary, a bad option, or more tokens than
            the model can place.
    """
    if model.head_type != "lm":
        raise ValueError(f"only a language model (head='lm') generates, this one has head={model.head_type!r}")
    if prompt.ndim != 2 or prompt.shape[1] == 0:
        raise ValueError(f"the prompt must be (batch, tokens) with at least one token, got {tuple(prompt.shape)}")
    check_ids(prompt, model.token_embed.num_embeddings)  # type: ignore[arg-type]
    if num_tokens < 0:
        raise ValueError(f"num_tokens must be >= 0, got {num_tokens}")
    if temperature < 0 or (top_k is not None and top_k < 1):
        raise ValueError(f"temperature must be >= 0 and top_k >= 1 or None, got {temperature=} and {top_k=}")
    total = prompt.shape[1] + num_tokens
    cache = new_cache(model, max(model.length, total) if context is None else context)
    tokens, newest = prompt, prompt
    for _ in range(num_tokens):
        logits = model(newest, cache=cache)[:, -1].float()
        newest = _draw(logits, temperature, top_k, generator)
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
