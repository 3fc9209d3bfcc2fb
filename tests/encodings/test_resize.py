"""Another native grid: tables are resampled per head, everything else stays bit for bit."""

from __future__ import annotations

import pytest
import torch

from tests.encodings.build import SCALE, build, inputs, names_and_axes, output, variants
from tests.oracles import ORACLES
from vit_rpe.attention import position_logits
from vit_rpe.encodings import list_encodings
from vit_rpe.position.geometry import TokenGrid

OLD = {1: (5,), 2: (3, 5), 3: (2, 3, 5)}
NEW = {1: (9,), 2: (7, 4), 3: (3, 5, 2)}
every = pytest.mark.parametrize(("name", "axes"), names_and_axes())


@pytest.mark.parametrize("prefix", [0, 1])
@every
def test_same_size_is_bit_identical(name: str, axes: int, prefix: int) -> None:
    encoding = build(name, TokenGrid(OLD[axes], prefix))
    again = encoding.resized(TokenGrid(OLD[axes], prefix))
    for key, value in encoding.state_dict().items():
        assert torch.equal(again.state_dict()[key], value)


@every
def test_a_constant_stays_constant(name: str, axes: int) -> None:
    for options in variants(name):
        try:
            encoding = build(name, TokenGrid(OLD[axes], 1), options)
        except ValueError:
            continue
        for parameter in encoding.parameters():
            parameter.data.fill_(0.3)
        for value in encoding.resized(TokenGrid(NEW[axes], 1)).state_dict().values():
            torch.testing.assert_close(value, torch.full_like(value, 0.3), atol=1e-6, rtol=0)


@every
def test_only_what_runs_over_offsets_changes(name: str, axes: int) -> None:
    """Prefix values, networks, slopes: whatever has the same shape is the same bit for bit."""
    for options in variants(name):
        try:
            encoding = build(name, TokenGrid(OLD[axes], 1), options)
        except ValueError:
            continue
        old, new = encoding.state_dict(), encoding.resized(TokenGrid(NEW[axes], 1)).state_dict()
        assert set(old) == set(new)
        for key, value in old.items():
            assert value.shape != new[key].shape or torch.equal(value, new[key])
            assert key != "prefix_bias" or value.shape == new[key].shape


@every
def test_offset_zero_is_kept(name: str, axes: int) -> None:
    encoding = build(name, TokenGrid(OLD[axes]))
    other = encoding.resized(TokenGrid(NEW[axes]))
    if getattr(ORACLES[name], "NATIVE_SIZE_COUNTS", False):
        return
    point = TokenGrid((1,) * axes)
    q, k, _ = inputs(point, point)
    before, after = (position_logits(q, k, found(point, point), SCALE) for found in (encoding, other))
    if before is None:
        assert after is None
    else:
        assert after is not None
        torch.testing.assert_close(after, before, atol=1e-6, rtol=1e-6)


@every
def test_result_works_on_its_grid(name: str, axes: int) -> None:
    grid = TokenGrid(NEW[axes], 1)
    encoding = build(name, TokenGrid(OLD[axes], 1)).resized(grid)
    assert output(encoding, grid, grid, inputs(grid, grid)).isfinite().all()
    assert encoding.grid == grid


def test_a_rising_table_stays_rising() -> None:
    encoding = build("bias", TokenGrid((5, 4)))
    encoding.table.data = (
        10.0 * torch.arange(9.0, dtype=torch.float64)[:, None] + torch.arange(7.0) + torch.zeros(3, 1, 1)
    )
    table = encoding.resized(TokenGrid((8, 9))).table
    assert (table.diff(dim=1) > 0).all()
    assert (table.diff(dim=2) > 0).all()


@pytest.mark.parametrize("name", ["bias", "bias_axial"])
def test_a_fixed_distance_is_not_resampled(name: str) -> None:
    near = build(name, TokenGrid((5, 4)), {"max_distance": 2})
    far = build(name, TokenGrid((5, 4)), {"max_distance": 3})
    with pytest.raises(RuntimeError, match="max_distance"):
        far.load_state_dict(near.state_dict())
    moved = near.resized(TokenGrid((9, 8)))
    assert all(torch.equal(a, b) for a, b in zip(moved.parameters(), near.parameters(), strict=True))


def test_list_is_sorted() -> None:
    assert list_encodings() == sorted(list_encodings())
