"""Weights that would leave a part of a model undrawn from them are refused, whatever ``strict`` says later."""

from __future__ import annotations

from collections.abc import Container, Sequence

from torch import nn

HEAD = ("head.", "fc_norm.", "attn_pool.")
"""What belongs to the task, and starts anew for another one."""


def require_all(weights: Container[str], model: nn.Module, *, except_for: Sequence[str] = ()) -> None:
    """Check that weights fill a model, apart from its position encodings, which speak for themselves.

    Args:
        weights: names of the parameters at hand, named as the model names them.
        except_for: beginnings of names that may lack.

    Raises:
        ValueError: some parameters lack; the message names the first.
    """
    expected = [name for name in model.state_dict() if "rpe" not in name.split(".")]
    lacking = [name for name in expected if name not in weights and not name.startswith(tuple(except_for))]
    if lacking:
        raise ValueError(
            f"the weights lack {len(lacking)} of the {len(expected)} parameters of the model, {lacking[0]!r} first: "
            "they are of a model with other arguments"
        )
