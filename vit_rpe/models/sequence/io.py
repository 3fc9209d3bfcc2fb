"""Into and out of a sequence model: what goes together, absolute positions, pooling."""

from __future__ import annotations

import torch
from torch import Tensor

from vit_rpe.layers.absolute import sincos_embedding
from vit_rpe.position.geometry import Device, TokenGrid

HEADS = ("classification", "token", "lm")
POOLS = ("avg", "max", "last", "token")


def check_ways(
    vocab_size: int | None,
    in_features: int | None,
    num_classes: int | None,
    *,
    head: str,
    pool: str,
    class_token: bool,
    causal: bool,
) -> int:
    """The number of outputs, after checking that the ways in and out go together.

    Raises:
        ValueError: they do not.
    """
    if (vocab_size is None) == (in_features is None):
        raise ValueError(f"give vocab_size or in_features, got vocab_size={vocab_size} and in_features={in_features}")
    if class_token and causal:
        raise ValueError("class_token=True needs causal=False: a prefix token of a causal model sees no other token")
    if pool == "token" and not class_token:
        raise ValueError("pool='token' needs class_token=True; got class_token=False")
    if head != "lm":
        return 1000 if num_classes is None else num_classes
    if vocab_size is None:
        raise ValueError(f"head='lm' predicts token ids and needs vocab_size, got in_features={in_features}")
    if num_classes not in (None, vocab_size):
        raise ValueError(f"head='lm' has one output a token of the vocabulary, {vocab_size}; got {num_classes=}")
    return vocab_size


def check_input(x: Tensor, vocab_size: int | None, in_features: int | None) -> None:
    """Refuse what is neither token ids (B, N) nor vectors (B, N, F), whichever the model takes.

    The values of ids are not looked at, which would make an accelerator wait: :func:`check_ids` does.

    Raises:
        ValueError: another shape or kind of number.
    """
    if not isinstance(x, Tensor):
        raise ValueError(f"this model takes a tensor, got a {type(x).__name__}")
    if vocab_size is not None and (x.ndim != 2 or x.dtype not in (torch.int32, torch.int64)):
        expected = "token ids (batch, tokens), int32 or int64"
    elif in_features is not None and (x.ndim != 3 or x.shape[2] != in_features or not x.is_floating_point()):
        expected = f"vectors (batch, tokens, {in_features} features) of floats"
    else:
        return
    raise ValueError(f"this model takes {expected}, got {x.dtype} of shape {tuple(x.shape)}")


def check_ids(ids: Tensor, vocab_size: int) -> None:
    """Refuse token ids outside of the vocabulary.

    Raises:
        ValueError: naming the smallest or largest of them.
    """
    check_input(ids, vocab_size, None)
    if ids.numel() == 0:
        return
    low, high = (int(end) for end in ids.aminmax())
    if low < 0 or high >= vocab_size:
        raise ValueError(f"token ids must be 0 ... {vocab_size - 1}, got {low if low < 0 else high}")


def absolute_embedding(kind: str, learned: Tensor | None, grid: TokenGrid, dim: int, device: Device) -> Tensor:
    """The absolute embedding of the tokens on ``grid``, (N, C).

    Args:
        kind: ``"sincos"`` or ``"learned"``.
        learned: (1, native length, C).

    Raises:
        ValueError: a learned one, beyond its length.
    """
    if kind == "sincos":
        return sincos_embedding(grid, dim, device=device)
    assert learned is not None
    start, end = grid.origin[0], grid.origin[0] + grid.size[0]
    if end > learned.shape[1]:
        raise ValueError(
            f"pos_embed='learned' knows the {learned.shape[1]} positions it was made for, got {end} tokens: shorten "
            "the sequence, call set_length (resamples), or use 'sincos' or a relative encoding"
        )
    return learned[0, start:end]


def pool_sequence(x: Tensor, visible: Tensor | None, pool: str, num_prefix: int) -> Tensor:
    """One vector a sequence, (B, P + N, C) -> (B, C), over the visible tokens; zeros where there is none."""
    if pool == "token":
        return x[:, 0]
    x = x[:, num_prefix:]
    if visible is None:
        return x.mean(1) if pool == "avg" else x.amax(1) if pool == "max" else x[:, -1]
    some = visible.any(1, keepdim=True)
    if pool == "avg":
        return (x * visible[..., None]).sum(1) / visible.sum(1, keepdim=True).clamp(min=1)
    if pool == "max":
        return x.masked_fill(~visible[..., None], float("-inf")).amax(1).masked_fill(~some, 0.0)
    places = torch.arange(x.shape[1], device=x.device) * visible
    return x[torch.arange(x.shape[0], device=x.device), places.amax(1)].masked_fill(~some, 0.0)
