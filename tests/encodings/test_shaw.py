"""shaw: its defaults, what is created, and which tables are resampled when loaded."""

from __future__ import annotations

import pytest
import torch

from tests.encodings.build import build
from vit_rpe.encodings import create_encoding
from vit_rpe.position.geometry import TokenGrid

H, D = 3, 4


@pytest.mark.parametrize(("size", "rows"), [((5,), [33]), ((2, 3), [5, 5]), ((2, 3, 4), [5, 5, 5])])
def test_default_distance_is_that_of_the_papers(size: tuple[int, ...], rows: list[int]) -> None:
    encoding = create_encoding("shaw", H, D, TokenGrid(size))
    shapes = {name: tuple(parameter.shape) for name, parameter in encoding.named_parameters()}
    sides = ("key", "value")
    assert shapes == {f"{side}_{axis}": (1, length, D) for side in sides for axis, length in enumerate(rows)}


def test_nothing_unused_is_created() -> None:
    spec = {"name": "shaw", "value": False, "share_heads": False, "max_distance": [1, 2]}
    encoding = create_encoding(spec, H, D, TokenGrid((4, 5)))
    shapes = {name: tuple(parameter.shape) for name, parameter in encoding.named_parameters()}
    assert shapes == {"key_0": (H, 3, D), "key_1": (H, 5, D)}


def test_exact_tables_are_resampled_and_keep_their_centre() -> None:
    encoding = build("shaw", TokenGrid((3, 4)), {"max_distance": "exact"})
    larger = encoding.resized(TokenGrid((5, 6)))
    assert (larger.key_0.shape[1], larger.value_1.shape[1]) == (9, 11)
    torch.testing.assert_close(larger.key_0[:, 4], encoding.key_0[:, 2], rtol=0, atol=0)


def test_fixed_tables_are_not_resampled() -> None:
    encoding = build("shaw", TokenGrid((3, 4)))
    larger = encoding.resized(TokenGrid((5, 6)))
    torch.testing.assert_close(larger.state_dict(), encoding.state_dict(), rtol=0, atol=0)
    with pytest.raises(RuntimeError, match="max_distance is fixed"):
        build("shaw", TokenGrid((3, 4)), {"max_distance": 1}).load_state_dict(encoding.state_dict())


@pytest.mark.parametrize("value", ["exakt", -1, (1,), 1.5, {}])
def test_bad_distances_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="max_distance"):
        create_encoding({"name": "shaw", "max_distance": value}, H, D, TokenGrid((3, 4)))
