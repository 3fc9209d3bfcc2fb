"""What holds for the parameters of every encoding: zero starts, a dimension each, a repr that shows their sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.encodings.build import HEAD_DIM, HEADS, build, inputs, native_grid, output, refuses, variants
from vit_rpe.encodings import create_encoding, encoding_options, list_encodings
from vit_rpe.position.geometry import TokenGrid

GRID = native_grid(2, prefix=1)
DRAWN = [name for name in list_encodings() if "init_std" in encoding_options(name)]


def every_variant() -> list[Any]:
    found = [(name, options) for name in list_encodings() for options in variants(name)]
    return [pytest.param(*one, id=f"{one[0]}-{n}") for n, one in enumerate(found) if not refuses(*one, GRID)]


@pytest.mark.parametrize("name", DRAWN)
def test_no_deviation_means_zeros(name: str) -> None:
    for options in variants(name):
        if "init" in options or refuses(name, options, GRID):
            continue
        encoding = build(name, GRID, {**options, "init_std": 0.0}, seed=None)
        assert all((parameter == 0).all() for parameter in encoding.parameters())


@pytest.mark.parametrize(("name", "options"), every_variant())
def test_every_parameter_has_a_dimension_and_the_repr_shows_sizes(name: str, options: dict[str, Any]) -> None:
    encoding = build(name, GRID, options)
    shown = repr(encoding)
    assert f"heads={HEADS}, head_dim={HEAD_DIM}, grid={GRID.size} + 1 prefix" in shown
    for own, parameter in encoding.named_parameters():
        assert parameter.ndim > 0, own
        if "." not in own:
            assert f"{own}: {tuple(parameter.shape)}" in shown


def test_old_files_of_fire_hold_scalars_without_a_dimension() -> None:
    source, target = build("fire", GRID), build("fire", GRID, seed=2)
    old = {name: value[0] if name in ("c", "L") else value for name, value in source.state_dict().items()}
    assert old["c"].ndim == 0
    target.load_state_dict(old)
    tensors = inputs(GRID, GRID)
    torch.testing.assert_close(output(target, GRID, GRID, tensors), output(source, GRID, GRID, tensors))


@pytest.mark.parametrize(
    ("given", "meant"), [("RoPE", "rope"), ("T5", "t5"), ("ALiBi", "alibi"), ("Rope-Mixed", "rope_mixed")]
)
def test_capitals_do_not_hide_what_is_meant(given: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f"did you mean '{meant}'"):
        create_encoding(given, HEADS, HEAD_DIM, GRID)


@pytest.mark.parametrize("name", ["bias", "bias_axial", "shaw"])
def test_a_way_to_resample_what_is_never_resampled_is_refused(name: str) -> None:
    spec = {"name": name, "max_distance": 2, "resample": "geometric"}
    with pytest.raises(ValueError, match="resample='geometric' has no effect"):
        create_encoding(spec, HEADS, HEAD_DIM, GRID)


def test_summed_tables_under_both_names() -> None:
    """``bias_axial`` is ``bias`` with ``axes="summed"``: names, values and terms."""
    torch.manual_seed(0)
    new = create_encoding({"name": "bias", "axes": "summed", "prefix": "learned"}, HEADS, HEAD_DIM, GRID)
    torch.manual_seed(0)
    old = create_encoding({"name": "bias_axial", "prefix": "learned"}, HEADS, HEAD_DIM, GRID)
    assert list(new.state_dict()) == list(old.state_dict()) == ["table_0", "table_1", "prefix_bias"]
    for one, other in zip(new.parameters(), old.parameters(), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(new(GRID, GRID).offset_bias[0], old(GRID, GRID).offset_bias[0])


@pytest.mark.parametrize(("joint", "axes"), [(True, "joint"), (False, "summed")])
def test_the_old_option_of_t5(joint: bool, axes: str) -> None:
    options = {"num_buckets": 4, "max_distance": 3}
    torch.manual_seed(0)
    with pytest.warns(DeprecationWarning, match=f"axes='{axes}'"):
        old = create_encoding({"name": "t5", "joint": joint, **options}, HEADS, HEAD_DIM, GRID)
    torch.manual_seed(0)
    new = create_encoding({"name": "t5", "axes": axes, **options}, HEADS, HEAD_DIM, GRID)
    assert list(new.state_dict()) == list(old.state_dict())
    assert torch.equal(new(GRID, GRID).offset_bias[0], old(GRID, GRID).offset_bias[0])
    with pytest.raises(ValueError, match="old name of axes"):
        create_encoding({"name": "t5", "joint": True, "axes": "joint"}, HEADS, HEAD_DIM, GRID)
    with pytest.raises(ValueError, match="axes='joint' needs a grid of several axes"):
        create_encoding({"name": "t5", "axes": "joint"}, HEADS, HEAD_DIM, TokenGrid((5,)))
