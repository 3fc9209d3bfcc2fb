"""Geometric resampling of tables: near offsets keep their value, far ones are stretched by a constant ratio."""

from __future__ import annotations

import pytest
import torch

from vit_rpe.encodings import create_encoding
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.resampling import geometric_positions, resample

GRIDS = [((5, 7), (8, 12)), ((3, 4), (5, 9)), ((6, 5), (4, 3)), ((1, 2), (4, 5))]


@pytest.mark.parametrize(("old", "new"), GRIDS)
def test_constant_centre_and_neighbours(old: tuple[int, int], new: tuple[int, int]) -> None:
    lengths = [2 * size - 1 for size in new]
    shape = (3, *(2 * size - 1 for size in old))
    constant = resample(torch.full(shape, 0.3), (1, 2), lengths, method="geometric")
    torch.testing.assert_close(constant, torch.full((3, *lengths), 0.3), atol=1e-6, rtol=0)
    table = torch.randn(shape) * 3
    other = resample(table, (1, 2), lengths, method="geometric")
    for dh, dw in [(0, 0), (0, 1), (0, -1), *([(1, 0), (-1, 1)] if old[0] > 1 else [])]:
        before, after = (at[:, size[0] - 1 + dh, size[1] - 1 + dw] for at, size in ((table, old), (other, new)))
        assert torch.equal(after, before)


@pytest.mark.parametrize("method", ["bicubic", "linear", "geometric"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_centre_is_the_same_bit_for_bit(method: str, dtype: torch.dtype) -> None:
    for old in range(1, 40, 2):
        table = (torch.randn(4, old) * 30).to(dtype)
        for new in range(1, 60, 2):
            found = resample(table, (1,), (new,), method=method)
            assert torch.equal(found[:, new // 2], table[:, old // 2]), (old, new)


def test_positions_are_a_geometric_progression_that_reaches_the_last_offset() -> None:
    places = geometric_positions(5, 11)
    gaps = torch.tensor([0.0, *places], dtype=torch.float64).diff()
    torch.testing.assert_close(gaps[1:] / gaps[:-1], (gaps[1] / gaps[0]).expand(4))
    assert gaps[0] == 1
    assert abs(places[-1] - 11) < 1e-9
    assert geometric_positions(5, 3) == [1, 2, 3, 4, 5], "a smaller grid is the centre of the table"


@pytest.mark.parametrize("name", ["bias", "bias_axial", "decomposed", "shaw"])
def test_the_option_reaches_loading_and_leaves_prefix_entries_alone(name: str) -> None:
    options = {"bias": {"prefix": "learned"}, "bias_axial": {"prefix": "learned"}, "shaw": {"max_distance": "exact"}}
    spec = {"name": name, **options.get(name, {})}
    source = create_encoding({**spec, "resample": "geometric"}, 3, 8, TokenGrid((4, 5), 1))
    for parameter in source.parameters():
        parameter.data.normal_()
    larger = source.resized(TokenGrid((9, 7), 1)).state_dict()
    plain = create_encoding(spec, 3, 8, TokenGrid((9, 7), 1))
    plain.load_state_dict(source.state_dict())
    for key, value in source.state_dict().items():
        if key == "prefix_bias":
            assert torch.equal(larger[key], value)
        else:
            assert (larger[key] - plain.state_dict()[key]).abs().max() > 1e-2
    with pytest.raises(ValueError, match="did you mean 'geometric'"):
        create_encoding({**spec, "resample": "geometrc"}, 3, 8, TokenGrid((4, 5), 1))


@pytest.mark.filterwarnings("ignore:torch.searchsorted", "ignore:Using a non-tuple sequence")  # of timm's interpolation
def test_it_agrees_with_timm_where_timm_has_room_for_the_ratio() -> None:
    from timm.layers.pos_embed_rel import resize_rel_pos_bias_table

    table = torch.randn(3, 13, 9)
    theirs = resize_rel_pos_bias_table(table.flatten(1).T.clone(), (11, 8), (21 * 15, 3), (7, 5))
    ours = resample(table, (1, 2), (21, 15), method="geometric")
    torch.testing.assert_close(ours, theirs.T.reshape(3, 21, 15), atol=1e-3, rtol=0)
