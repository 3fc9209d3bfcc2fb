"""What does not belong together is refused before a kernel runs; an axis of length 1 is legal where documented."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from tests.attention.cases import ON_THE_CPU
from vit_rpe import TokenGrid, attend, attention_weights
from vit_rpe.attention import KERNELS
from vit_rpe.position.terms import AxisBias, PositionTerms, RelativeVectors

GRID = TokenGrid((2, 3), num_prefix=1)
BATCH, HEADS, N, WIDTH = 5, 2, GRID.num_tokens, 4
GRIDS = (GRID, GRID)


def qkv() -> list[Tensor]:
    return [torch.randn(BATCH, HEADS, N, WIDTH, dtype=torch.float64) for _ in range(3)]


def vectors(heads: int = 1, width: int = WIDTH, index: tuple[int, ...] = (N, N), axis: int | None = None) -> tuple:
    return (RelativeVectors(torch.randn(heads, 6, width).double(), torch.zeros(index, dtype=torch.long), axis),)


def turn(*shape: int) -> tuple[Tensor, Tensor]:
    return torch.randn(2, *shape).double().unbind(0)


def mask(*shape: int) -> Tensor:
    return torch.ones(shape, dtype=torch.bool)


WRONG: dict[str, tuple[PositionTerms, str]] = {
    "bias of 3 heads": (PositionTerms(bias=torch.randn(3, N, N)), "heads 2.* got .*3, 7, 7"),
    "bias of 4 samples": (PositionTerms(bias=torch.randn(4, 1, N, N)), "batch 5.* got .*4, 1, 7, 7"),
    "bias of 6 keys": (PositionTerms(bias=torch.randn(1, N, 6)), "keys 7.* got .*1, 7, 6"),
    "bias of 2 axes": (PositionTerms(bias=torch.randn(N, N)), "optional; got"),
    "visible of 3 heads": (PositionTerms(visible=mask(3, N, N)), "heads 2.* got .*3, 7, 7"),
    "visible of 6 queries": (PositionTerms(visible=mask(6, N)), "queries 7.* got .*6, 7"),
    "axis_bias of 3 heads": (PositionTerms(axis_bias=(AxisBias(torch.randn(3, 3, 3), 1),), grids=GRIDS), "heads 2"),
    "axis_bias of another axis": (
        PositionTerms(axis_bias=(AxisBias(torch.randn(1, 2, 2), 1),), grids=GRIDS),
        "axis 3.* got .*1, 2, 2",
    ),
    "axis_bias beyond the axes": (PositionTerms(axis_bias=(AxisBias(torch.randn(1, 3, 3), 2),), grids=GRIDS), "axis 2"),
    "axis_bias without grids": (PositionTerms(axis_bias=(AxisBias(torch.randn(1, 3, 3), 1),)), "grids"),
    "offset_bias of 3 heads": (PositionTerms(offset_bias=(torch.randn(3, 3, 5),), grids=GRIDS), "heads 2"),
    "offset_bias of other offsets": (
        PositionTerms(offset_bias=(torch.randn(1, 5, 3),), grids=GRIDS),
        "offsets 3.*1, 5",
    ),
    "prefix_bias of 3 heads": (PositionTerms(prefix_bias=torch.randn(3, 3), grids=GRIDS), "heads 2.* got .*3, 3"),
    "prefix_bias of 2 kinds": (PositionTerms(prefix_bias=torch.randn(2, 2), grids=GRIDS), "kinds of pairs 3"),
    "rotation of 3 heads": (PositionTerms(rotate_q=turn(3, N, 2), rotate_k=turn(3, N, 2)), "heads 2.* got .*3, 7, 2"),
    "rotation of 6 tokens": (PositionTerms(rotate_k=turn(6, 2)), "tokens 7.* got .*6, 2"),
    "rotation of 4 pairs": (PositionTerms(rotate_q=turn(N, 4)), "half the width 2.* got .*7, 4"),
    "grids of 8 tokens": (PositionTerms(grids=(TokenGrid((2, 4)),) * 2), "7 tokens.* 8"),
} | {
    f"{name} {what}": (PositionTerms(**{name: parts}, grids=GRIDS), message)
    for name in ("on_query", "on_key", "on_value")
    for what, parts, message in (
        ("of 3 heads", vectors(heads=3), "heads 2.* got .*3, 6, 4"),
        ("of width 5", vectors(width=5), "width 4.* got .*1, 6, 5"),
        ("of 6 keys", vectors(index=(N, 6)), "keys 7.* got .*7, 6"),
        ("of 4 samples", vectors(index=(4, N, N)), "batch 5.* got .*4, 7, 7"),
        ("along a longer axis", vectors(index=(2, 2), axis=1), "axis 3.* got .*2, 2"),
    )
}


@pytest.mark.parametrize("impl", ["auto", *KERNELS])
@pytest.mark.parametrize("what", WRONG)
def test_terms_that_do_not_fit(what: str, impl: str) -> None:
    terms, message = WRONG[what]
    q, k, v = qkv()
    with pytest.raises(ValueError, match=message):
        attend(q, k, v, terms, scale=0.5, impl=impl)
    if not (what.startswith("on_value") and "width" in what):  # weights know no width of values
        with pytest.raises(ValueError, match=message):
            attention_weights(q, k, terms, scale=0.5)


def test_one_head_stays_one_head() -> None:
    q, k, v = (x[:, :1] for x in qkv())
    with pytest.raises(ValueError, match=r"heads 1, .*got .*3, 7, 7"):
        attend(q, k, v, PositionTerms(bias=torch.randn(3, N, N)), scale=0.5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda q, k, v: (q, k[:, :1], v), "k must be .*heads 2"),
        (lambda q, k, v: (q, k[..., :3], v), "k must be .*width 4"),
        (lambda q, k, v: (q, k, v[:, :, 1:]), "v must be .*keys 7.*6, 4"),
        (lambda q, k, v: (q, k[:4], v), "k must be .*batch 5"),
        (lambda q, k, v: (q[0], k, v), "q must be"),
    ],
)
def test_queries_keys_and_values_that_do_not_fit(change: Callable[..., tuple[Tensor, ...]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        attend(*change(*qkv()), PositionTerms(), scale=0.5)


ONES = list(product((1, BATCH), (1, HEADS), (1, N), (1, N)))


@pytest.mark.parametrize("impl", ["auto", *ON_THE_CPU])
@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("part", ["bias", "visible", "caller"])
def test_axes_of_length_one(part: str, dropped: bool, impl: str) -> None:
    """Masks and biases broadcast along every axis, also where each sample kept other tokens, as if they were whole."""
    tensors = qkv()
    whole = (BATCH, HEADS, N, N)
    keep = torch.stack([torch.randperm(N)[:4] for _ in range(BATCH)])
    if dropped:
        tensors = [x[:, :, :4] for x in tensors]
    table = () if dropped else (torch.randn(HEADS, 3, 5).double(),)
    axes = () if dropped else (AxisBias(torch.randn(HEADS, 3, 3).double(), 1),)
    base = PositionTerms(offset_bias=table, axis_bias=axes, grids=None if dropped else GRIDS)
    if dropped and impl in ("fold", "windows"):
        return  # these need grids
    for shape in ONES:
        values = torch.randn(shape, dtype=torch.float64) if part == "bias" else torch.rand(shape) > 0.4
        results = []
        for given in (values, values.expand(whole).contiguous()):
            if part == "caller":
                seen = given[:, :, :4, :4] if dropped else given
                terms, visible = base, seen
            else:
                terms, visible = base._replace(**{part: given}), None
                terms = terms.take(keep) if dropped else terms
            results.append(attend(*tensors, terms, scale=0.5, visible=visible, impl=impl))
        assert_close(results[0], results[1])


def test_what_is_per_sample_stays_so_when_tokens_are_dropped() -> None:
    """Terms of samples that differ already: each sample's own are taken."""
    keep = torch.stack([torch.randperm(N)[:4] for _ in range(BATCH)])
    index = torch.randint(-1, 6, (BATCH, N, N))
    cos, sin = turn(BATCH, 1, N, 2)
    part = RelativeVectors(torch.randn(1, 6, WIDTH), index)
    taken = PositionTerms(rotate_q=(cos, sin), on_query=(part,)).take(keep)
    for sample in range(BATCH):
        assert torch.equal(taken.on_query[0].index[sample], index[sample][keep[sample]][:, keep[sample]])
        assert torch.equal(taken.rotate_q[0][sample, 0], cos[sample, 0, keep[sample]])
