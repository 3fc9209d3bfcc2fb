"""Tables over offsets spread over pairs: by a lookup where pairs are few, by copied runs where they are many."""

from __future__ import annotations

import pytest
import torch

from tests.oracles._loops import token_positions
from vit_rpe.position import offset_tables
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.offset_tables import offset_range
from vit_rpe.position.terms import PositionTerms, dense_bias

GRIDS = {
    "square": (TokenGrid((4, 4)), TokenGrid((4, 4))),
    "prefix": (TokenGrid((2, 5), 1), TokenGrid((3, 4), 2)),
    "moved": (TokenGrid((2, 3), 1, origin=(1, 2), extent=(5, 7)), TokenGrid((5, 7))),
    "pooled alike": (TokenGrid((2, 3), stride=(2, 3)), TokenGrid((3, 2), stride=(2, 3))),
    "pooled keys": (TokenGrid((4, 6)), TokenGrid((2, 3), stride=(2, 2))),
    "one axis": (TokenGrid((7,)), TokenGrid((5,), 1)),
    "a long axis": (TokenGrid((70,)), TokenGrid((66,))),
    "three axes": (TokenGrid((2, 3, 2)), TokenGrid((3, 2, 4))),
}


@pytest.mark.parametrize("learned_prefix", [False, True])
@pytest.mark.parametrize("few", [0, 2**14])
@pytest.mark.parametrize("name", list(GRIDS))
def test_both_ways_find_every_offset(
    name: str, few: int, learned_prefix: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_tables, "FEW_PAIRS", few)
    q, k = GRIDS[name]
    ranges = [offset_range(q, k, axis) for axis in range(q.ndim)]
    table = torch.randn(3, *(count for _, count in ranges), dtype=torch.float64, requires_grad=True)
    prefix = torch.randn(3, 3, dtype=torch.float64, requires_grad=True) if learned_prefix else None
    expected = torch.zeros(3, q.num_tokens, k.num_tokens, dtype=torch.float64)
    for i, at_q in enumerate(token_positions(q)):
        for j, at_k in enumerate(token_positions(k)):
            if at_q is not None and at_k is not None:
                found = tuple(at - other - low for at, other, (low, _) in zip(at_q, at_k, ranges, strict=True))
                expected[:, i, j] = table.movedim(0, -1)[found]
            elif prefix is not None:
                expected[:, i, j] = prefix[:, 0 if at_k is not None else 1 if at_q is not None else 2]
    terms = PositionTerms(offset_bias=(table,), prefix_bias=prefix, grids=(q, k))
    found_here = dense_bias(terms)
    assert found_here is not None
    assert torch.equal(found_here, expected)
    with torch.no_grad():
        without = dense_bias(terms)
    assert without is not None
    assert torch.equal(without, expected)
    learned = [table] if prefix is None else [table, prefix]
    out = torch.randn_like(expected)
    alike = {"allow_unused": True, "materialize_grads": True}
    mine = torch.autograd.grad(found_here, learned, out, create_graph=True, **alike)
    for own, of_loops in zip(mine, torch.autograd.grad(expected, learned, out, **alike), strict=True):
        torch.testing.assert_close(own, of_loops)
