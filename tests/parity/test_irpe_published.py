"""irpe against the published recipe, transcribed in loops, with tables in the layout of the public files.

There the tables are (1, D, buckets), "euclidean" and "quantization" have rows -beta .. beta, and side "q" is indexed by
key minus query; the test states how each is carried over.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from vit_rpe.attention import attend
from vit_rpe.encodings import create_encoding
from vit_rpe.position.geometry import TokenGrid

HEADS, DIM, HEIGHT, WIDTH = 2, 3, 5, 7
NUM = HEIGHT * WIDTH


def index(distance: float, ratio: float) -> int:
    alpha, beta, gamma = ratio, 2 * ratio, 8 * ratio
    size = abs(distance)
    if size > alpha:
        size = min(round(alpha + math.log(size / alpha) / math.log(gamma / alpha) * (beta - alpha)), beta)
    return int(math.copysign(size, distance))


def published_buckets(method: str, ratio: float, prefix: int) -> tuple[Tensor, int]:
    """Bucket of every (query, key), and the number of buckets without the one of prefix tokens."""
    half = int(2 * ratio)
    count = (2 * half + 1) ** 2 if method == "product" else 2 * half + 1
    buckets = torch.full((prefix + NUM, prefix + NUM), count)
    for i in range(NUM):
        for j in range(NUM):
            dh, dw = i // WIDTH - j // WIDTH, i % WIDTH - j % WIDTH
            bucket = {
                "product": lambda h, w: (index(h, ratio) + half) * (2 * half + 1) + index(w, ratio) + half,
                "rows": lambda h, w: index(h, ratio) + half,
                "columns": lambda h, w: index(w, ratio) + half,
                "euclidean": lambda h, w: index(round(math.hypot(h, w)), ratio) + half,
                "quantization": lambda h, w: index(h * h + w * w, ratio) + half,
            }[method](dh, dw)
            buckets[prefix + i, prefix + j] = bucket
    return buckets, count


def carried_over(table: Tensor, side: str, method: str, count: int, ratio: float) -> Tensor:
    """A public table (buckets or buckets + 1, D) in our layout."""
    grid, extra = table[:count], table[count:]
    if method in ("euclidean", "quantization"):
        grid = grid[int(2 * ratio) :]
    elif side == "q":
        grid = grid.flip(0)  # -delta is the mirrored bucket, for products too
    return torch.cat([grid, extra])


@pytest.mark.parametrize("ratio", [1.9, 3.0, 0.5])
@pytest.mark.parametrize("prefix", [0, 1, 3])
@pytest.mark.parametrize("method", ["product", "cross", "euclidean", "quantization"])
def test_contextual_on_all_sides(method: str, prefix: int, ratio: float) -> None:
    grid = TokenGrid((HEIGHT, WIDTH), prefix)
    spec = {"name": "irpe", "method": method, "on": ("q", "k", "v"), "ratio": ratio}
    encoding = create_encoding(spec, HEADS, DIM, grid, dtype=torch.float64)
    tables, wanted = [], []
    q, k, v = (torch.randn(2, HEADS, prefix + NUM, DIM, dtype=torch.float64, requires_grad=True) for _ in range(3))
    logits, s = (q @ k.mT) * DIM**-0.5, DIM**-0.5
    vectors = torch.zeros(prefix + NUM, prefix + NUM, DIM, dtype=torch.float64)
    parts = {"_h": "rows", "_w": "columns"} if method == "cross" else {"": method}
    for ending, part in parts.items():
        bucket, count = published_buckets(part, ratio, prefix)
        for side in "qkv":
            table = torch.randn(count + (prefix > 0), DIM, dtype=torch.float64, requires_grad=True)
            tables.append(
                (table, lambda x, side=side, part=part, count=count: carried_over(x, side, part, count, ratio))
            )
            ours = encoding.get_parameter(f"table_{side}{ending}")
            wanted.append(ours)
            with torch.no_grad():
                ours.copy_(tables[-1][1](table))
            if side == "k":
                logits = logits + s * torch.einsum("bhid,ijd->bhij", q, table[bucket])
            elif side == "q":
                # Published: rpe(k) is (key, query) by the same index, transposed afterwards.
                logits = logits + s * torch.einsum("bhjd,jid->bhji", k, table[bucket]).mT
            else:
                vectors = vectors + table[bucket]
    weights = logits.softmax(-1)
    theirs = weights @ v + torch.einsum("bhij,ijd->bhid", weights, vectors)
    ours_out = attend(q, k, v, encoding(grid, grid), scale=s)
    torch.testing.assert_close(ours_out, theirs)

    pull = torch.randn_like(theirs)
    expected = torch.autograd.grad(theirs, [q, k, v, *(table for table, _ in tables)], pull)
    actual = torch.autograd.grad(ours_out, [q, k, v, *wanted], pull)
    changes = [lambda x: x] * 3 + [change for _, change in tables]
    for got, want, change in zip(actual, expected, changes, strict=True):
        torch.testing.assert_close(got, change(want))


@pytest.mark.parametrize("method", ["product", "cross", "euclidean", "quantization"])
def test_bias_mode(method: str) -> None:
    grid = TokenGrid((HEIGHT, WIDTH), 1)
    encoding = create_encoding({"name": "irpe", "method": method, "mode": "bias"}, HEADS, DIM, grid)
    q, k, v = (torch.randn(2, HEADS, 1 + NUM, DIM) for _ in range(3))
    logits = (q @ k.mT) * DIM**-0.5
    parts = {"_h": "rows", "_w": "columns"} if method == "cross" else {"": method}
    for ending, part in parts.items():
        bucket, count = published_buckets(part, 1.9, 1)
        table = torch.randn(HEADS, count + 1)
        with torch.no_grad():
            encoding.get_parameter(f"table{ending}").copy_(carried_over(table.T, "k", part, count, 1.9).T)
        logits = logits + table[:, bucket]
    torch.testing.assert_close(
        attend(q, k, v, encoding(grid, grid), scale=DIM**-0.5, impl="eager"), logits.softmax(-1) @ v
    )
