"""Attention that a window or causal order makes local: keys out of reach are not read, and nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from tests.attention.cases import encoding_cases, gradients
from tests.encodings.build import HEADS, SCALE, build, inputs, learned, refuses
from vit_rpe import RelativeMultiheadAttention, TokenGrid
from vit_rpe.attention import LazyTerms, attend
from vit_rpe.attention.kernels import window_plan, windows
from vit_rpe.encodings import PositionEncoding
from vit_rpe.position.masks import GeometricMask
from vit_rpe.position.terms import PositionTerms, combine

GRIDS = {1: TokenGrid((11,), 2), 2: TokenGrid((6, 5), 1), 3: TokenGrid((2, 4, 3), 1)}
MASKS = {
    "window": GeometricMask(window=1),
    "causal": GeometricMask(is_causal=True),
    "both": GeometricMask(True, 2),
}
CROSS = [
    (TokenGrid((5, 3), origin=(1, 1)), TokenGrid((6, 5))),
    (TokenGrid((5, 3), 1, origin=(4, 0)), TokenGrid((6, 5))),
    (TokenGrid((6, 5), 2), TokenGrid((3, 3), 1, stride=(2, 2))),
    (TokenGrid((3, 3), stride=(2, 2)), TokenGrid((6, 5))),
    (TokenGrid((2, 5), origin=(9, 0)), TokenGrid((4, 5))),
]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_plan, "BLOCK", 4)
    monkeypatch.setattr(window_plan, "BLOCKS", 1)


def compare(
    make: Callable[[], PositionTerms | LazyTerms],
    tensors: tuple[Tensor, ...],
    encoding: PositionEncoding,
    visible: Tensor | None = None,
) -> None:
    """Windows against the definition: output, and gradients of everything."""
    wanted = [*tensors, *learned(encoding)]
    expected = attend(*tensors, make(), scale=SCALE, visible=visible, impl="eager")
    found = attend(*tensors, make(), scale=SCALE, visible=visible, impl="windows")
    assert_close(found, expected)
    of_definition = gradients(expected, wanted)
    for mine, other in zip(gradients(found, wanted), of_definition, strict=True):
        zero = torch.zeros(())
        assert_close(zero if mine is None else mine, zero if other is None else other, check_dtype=False)
    with torch.no_grad():
        assert_close(attend(*tensors, make(), scale=SCALE, visible=visible, impl="windows"), expected)


def cases() -> list[Any]:
    """Every encoding, number of axes, set of options and mask; a sample of them unless all are asked for."""
    found = []
    for case, (mask, number) in product(encoding_cases(), zip(MASKS, range(3), strict=True)):
        name, axes, options = case.values
        sampled = not options and (number == axes - 1 or (axes == 2 and mask == "window"))
        marks = () if sampled else pytest.mark.exhaustive
        found.append(pytest.param(name, axes, options, mask, id=f"{case.id}-{mask}", marks=marks))
    return found


@pytest.mark.parametrize(("name", "axes", "options", "mask"), cases())
def test_every_encoding(name: str, axes: int, options: dict[str, Any], mask: str) -> None:
    grid = GRIDS[axes]
    if refuses(name, options, grid):
        return
    encoding = build(name, grid, options)
    tensors = inputs(grid, grid)
    hidden = PositionTerms(geometric_mask=MASKS[mask], grids=(grid, grid))
    compare(lambda: combine(encoding(grid, grid), hidden), tensors, encoding)
    compare(lambda: LazyTerms(grid, grid, encoding, MASKS[mask]), tensors, encoding)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("q", "k"), CROSS)
@pytest.mark.parametrize("name", ["none", "bias", "decomposed"])
def test_other_grids_and_queries_that_see_nothing(name: str, q: TokenGrid, k: TokenGrid, mask: str) -> None:
    encoding = build(name, TokenGrid((6, 5), 1))
    compare(lambda: encoding(q, k)._replace(geometric_mask=MASKS[mask], grids=(q, k)), inputs(q, k), encoding)


@pytest.mark.parametrize("name", ["bias", "shaw", "rope"])
def test_with_a_mask_of_the_caller(name: str) -> None:
    grid = GRIDS[2]
    encoding = build(name, grid)
    tensors = inputs(grid, grid)
    visible = torch.rand(2, HEADS, grid.num_tokens, grid.num_tokens) > 0.5
    visible[1, 2, 7] = False

    def make() -> PositionTerms:
        return encoding(grid, grid)._replace(geometric_mask=MASKS["both"], grids=(grid, grid))

    compare(make, tensors, encoding, visible)
    compare(make, tensors, encoding, visible[:, :, :1])


@pytest.mark.parametrize("names", [["bias", "rope"], ["fire", "rope", "bias"], ["lookhere", "shaw"]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_in_a_layer(names: list[str], dtype: torch.dtype) -> None:
    layer = RelativeMultiheadAttention(
        24, 2, rpe=names, grid=TokenGrid((6, 5), 1), window=(1, 2), attn_impl="windows", dtype=dtype
    )
    x = torch.randn(2, 31, 24, dtype=dtype, requires_grad=True)
    found = layer(x)
    layer.attn_impl = "eager"
    expected = layer(x)
    tolerance = {} if dtype == torch.float32 else {"rtol": 3e-2, "atol": 3e-2}
    assert_close(found, expected, **tolerance)
    mine, other = (torch.autograd.grad(out.square().sum(), [x])[0] for out in (found, expected))
    assert_close(mine, other, **({"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else tolerance))


def test_keys_out_of_reach_are_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not finite there does not matter, and no window reads more than radius and its own side."""
    grid = TokenGrid((12, 10))
    q, k, v = (torch.randn(1, 2, 120, 8) for _ in range(3))
    k[:, :, 60:], v[:, :, 60:] = float("nan"), float("nan")
    read = []
    run = windows.at_once

    def watched(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Tensor:
        read.append((q.shape[2], k.shape[2]))
        return run(q, k, v, *rest)

    monkeypatch.setattr(windows, "at_once", watched)
    terms = PositionTerms(geometric_mask=GeometricMask(window=1), grids=(grid, grid))
    found = attend(q, k, v, terms, scale=0.3, impl="windows")
    assert found[:, :, :40].isfinite().all()
    assert sum(queries for queries, _ in read) == 120
    assert max(keys for _, keys in read) == 16  # boxes of 2 x 2


def test_the_mask_of_all_pairs_is_never_made(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = TokenGrid((12, 10), 1)
    layer = RelativeMultiheadAttention(24, 2, rpe="bias", grid=grid, window=1)
    monkeypatch.setattr(windows, "FEW", 1)
    made = []
    dense = GeometricMask.dense

    def watched(mask: GeometricMask, q: TokenGrid, k: TokenGrid, device: Any = None) -> Tensor:
        made.append(q.num_tokens * k.num_tokens)
        return dense(mask, q, k, device)

    monkeypatch.setattr(GeometricMask, "dense", watched)
    x = torch.randn(2, 121, 24, requires_grad=True)
    found = layer(x)
    found.sum().backward()
    assert max(made) < 121 * 121 / 8
    layer.attn_impl = "eager"
    assert_close(found, layer(x))


def test_windows_of_one_shape_share_their_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = TokenGrid((12, 10), 1)
    encoding = build("bias", grid)
    terms = encoding(grid, grid)._replace(geometric_mask=GeometricMask(window=1))
    made = []
    make = windows._BiasOfShape._made

    def watched(self: Any, terms: PositionTerms) -> Tensor:
        made.append(terms.grids)
        return make(self, terms)

    monkeypatch.setattr(windows._BiasOfShape, "_made", watched)
    attend(*inputs(grid, grid), terms, scale=SCALE, impl="windows")
    assert len(made) == 10  # corners, sides and the middle, and the prefix token


@pytest.mark.parametrize("together", [True, False])
def test_a_second_derivative(together: bool) -> None:
    grid = GRIDS[2]
    encoding = build("bias", grid)
    q, k, v = inputs(grid, grid)
    found = []
    for impl in ("windows", "eager"):
        terms = encoding(grid, grid)._replace(geometric_mask=MASKS["window"])
        out = attend(q, k, v, terms, scale=SCALE, impl=impl)
        first = torch.autograd.grad(out.square().sum(), [k, v], create_graph=True)
        wanted = [q, k, v] if together else [v]
        found.append(torch.autograd.grad(sum(x.square().sum() for x in first), wanted))
    for mine, other in zip(*found, strict=True):
        assert_close(mine, other)


def test_many_gradients_at_once() -> None:
    grid = GRIDS[2]
    terms = PositionTerms(geometric_mask=MASKS["window"], grids=(grid, grid))
    q, k, v = inputs(grid, grid)
    directions = torch.randn(3, 2, HEADS, grid.num_tokens, v.shape[-1], dtype=v.dtype)
    out = attend(q, k, v, terms, scale=SCALE, impl="windows")
    found = torch.autograd.grad(out, [k, v], directions, is_grads_batched=True, retain_graph=True)
    for number, direction in enumerate(directions):
        for mine, one in zip(found, torch.autograd.grad(out, [k, v], direction, retain_graph=True), strict=True):
            assert_close(mine[number], one)


@pytest.mark.parametrize(
    ("size", "queries", "sides"),
    [((128, 128), 256, {(16, 16)}), ((11,), 4, {(4,), (3,)}), ((2, 100), 64, {(2, 25)}), ((3, 7, 5), 8, {(2, 2, 2)})],
)
def test_boxes_hold_every_token_once(size: tuple[int, ...], queries: int, sides: set[tuple[int, ...]]) -> None:
    grid = TokenGrid(size)
    boxes = window_plan._boxes(grid, queries)
    seen = torch.zeros(size)
    for box in boxes:
        seen[tuple(slice(*span) for span in box.ranges)] += 1
    assert (seen == 1).all()
    assert sides & {tuple(last - first for first, last in box.ranges) for box in boxes}


def test_auto_takes_windows_where_they_read_fewer_pairs() -> None:
    grid = TokenGrid((32, 32))
    q = torch.empty(1, 1, 1024, 8, device="meta")
    near, far = (PositionTerms(geometric_mask=GeometricMask(window=r), grids=(grid, grid)) for r in (3, 20))
    assert windows.pays(q, q, near) != windows.pays(q, q, far)
