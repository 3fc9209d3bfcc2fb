"""Attention in plain loops, pair by pair, from an oracle."""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor

from tests.oracles._pair import Answer, Oracle, Pair
from vit_rpe.encodings import PositionEncoding
from vit_rpe.position.geometry import TokenGrid


def token_positions(grid: TokenGrid) -> list[tuple[int, ...] | None]:
    """The coordinate of every token in sequence order, None for prefix tokens; row-major."""
    start = grid.origin
    step = grid.stride or (1,) * len(grid.size)
    cells = product(*(range(length) for length in grid.size))
    return [None] * grid.num_prefix + [
        tuple(o + s * i for o, s, i in zip(start, step, cell, strict=True)) for cell in cells
    ]


def attention_by_loops(
    oracle: Oracle,
    encoding: PositionEncoding,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_grid: TokenGrid,
    k_grid: TokenGrid,
    scale: float,
) -> Tensor:
    """Output (B, H, Nq, Dv) for q (B, H, Nq, D), k (B, H, Nk, D), v (B, H, Nk, Dv); differentiable in everything."""
    where_q, where_k = token_positions(q_grid), token_positions(k_grid)
    samples = []
    for b in range(q.shape[0]):
        heads = []
        for h in range(q.shape[1]):
            rows = []
            for i, q_pos in enumerate(where_q):
                answers = [
                    oracle(
                        encoding,
                        Pair(
                            h, q_pos, k_pos, q[b, h, i], k[b, h, j], scale, q_grid, k_grid, i, j, q[b, :, i].flatten()
                        ),
                    )
                    for j, k_pos in enumerate(where_k)
                ]
                rows.append(_one_query(answers, v[b, h]))
            heads.append(torch.stack(rows))
        samples.append(torch.stack(heads))
    return torch.stack(samples)


def _one_query(answers: list[Answer], values: Tensor) -> Tensor:
    seen = [(answer, value) for answer, value in zip(answers, values, strict=True) if answer.visible]
    if not seen:
        return torch.zeros_like(values[0])
    weights = torch.stack([answer.logit for answer, _ in seen]).softmax(0)
    out = torch.zeros_like(values[0])
    for weight, (answer, value) in zip(weights, seen, strict=True):
        out = out + weight * (value if answer.value is None else value + answer.value)
    return out
