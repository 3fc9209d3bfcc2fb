"""Every option of every encoding does something: it changes the output or the parameters, or it is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.encodings.build import HEAD_DIM, HEADS, axes_of, build, draw, inputs, native_grid, output
from tests.oracles import ORACLES
from vit_rpe.encodings import PositionEncoding, create_encoding, encoding_options, list_encodings

Options = dict[str, Any]


def changes() -> list[Any]:
    found = []
    for name in list_encodings():
        for option, sets in ORACLES[name].CHANGES.items():
            for number, change in enumerate(sets):
                base, changed = change if isinstance(change, tuple) else (without(change, option), change)
                found.append(pytest.param(name, base, changed, id=f"{name}-{option}-{number}"))
    return found


def without(options: Options, option: str) -> Options:
    return {key: value for key, value in options.items() if key != option}


@pytest.mark.parametrize("name", list_encodings())
def test_the_oracle_file_names_every_option(name: str) -> None:
    assert set(ORACLES[name].CHANGES) == set(encoding_options(name))


@pytest.mark.parametrize(("name", "base", "changed"), changes())
def test_option_makes_a_difference(name: str, base: Options, changed: Options) -> None:
    assert any(differs(name, axes, base, changed) for axes in axes_of(name)), f"{changed} is as {base}"


def differs(name: str, axes: int, base: Options, changed: Options) -> bool:
    """Whether the parameters, their initial values, or the output in training differ between two sets of options.

    Where the rest of the options is refused without the one in question, the comparison is with the defaults.
    """
    one, other = fresh(name, axes, base) or fresh(name, axes, {}), fresh(name, axes, changed)
    if one is None or other is None:
        return False
    if shapes(one) != shapes(other):
        return True
    if any(not torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True)):
        return True
    grid = native_grid(axes, prefix=1)
    tensors = inputs(grid, grid)
    outputs = []
    for encoding in (one, other):
        draw(encoding, seed=1)
        torch.manual_seed(4)
        outputs.append(output(encoding.train(), grid, grid, tensors))
    return bool((outputs[0] - outputs[1]).abs().max() > 1e-3)


def fresh(name: str, axes: int, options: Options) -> PositionEncoding | None:
    """An encoding with its own initial values; None where the options are refused."""
    torch.manual_seed(3)
    spec = {"name": name, **options}
    try:
        return create_encoding(spec, HEADS, HEAD_DIM, native_grid(axes, prefix=1), dtype=torch.float64)
    except ValueError:
        return None


def shapes(encoding: PositionEncoding) -> dict[str, torch.Size]:
    return {name: parameter.shape for name, parameter in encoding.named_parameters()}


@pytest.mark.parametrize("name", list_encodings())
def test_an_unknown_choice_is_refused(name: str) -> None:
    for option, parameter in encoding_options(name).items():
        if isinstance(parameter.default, str):
            with pytest.raises(ValueError, match="nonsense"):
                build(name, native_grid(2, prefix=1), {option: "nonsense"})


@pytest.mark.parametrize("prefix", ["zero", "learned"])
@pytest.mark.parametrize("name", [name for name in list_encodings() if "prefix" in encoding_options(name)])
def test_learned_prefix_values_need_prefix_tokens(name: str, prefix: str) -> None:
    """Values for prefix tokens exist exactly where they are asked for and the native grid has such tokens."""
    for number in (0, 1, 4):
        encoding = build(name, native_grid(2, number), {"prefix": prefix})
        assert ("prefix_bias" in shapes(encoding)) == (prefix == "learned" and number > 0)


REFUSED: list[tuple[str, Options, str]] = [
    ("bias", {"max_distance": -1}, "max_distance=-1"),
    ("bias", {"max_distance": (1, 2, 3)}, "max_distance"),
    ("bias_axial", {"max_distance": (1, -2)}, "max_distance"),
    ("rope", {"base": 0.0}, "base"),
    ("rope_mixed", {"base": -1.0}, "base"),
    ("rope_normalized", {"base": 0.0}, "base"),
    ("rope_normalized", {"shift": -0.1}, "shift"),
    ("rope_normalized", {"jitter": 0.9}, "jitter"),
    ("rope_normalized", {"rescale": 0.5}, "rescale"),
    ("t5", {"num_buckets": 5}, "num_buckets"),
    ("t5", {"num_buckets": 2}, "num_buckets"),
    ("t5", {"num_buckets": 32, "max_distance": 8}, "max_distance"),
    ("t5", {"num_buckets": 1, "bidirectional": False}, "num_buckets"),
    ("t5", {"num_buckets": 32, "max_distance": 16, "bidirectional": False}, "max_distance"),
    ("cpb", {"hidden": 0}, "hidden"),
    ("fire", {"causal": True}, "1-D"),
    ("lookhere", {"fov": 60}, "fov"),
    ("lookhere", {"depth_index": 1}, "depth"),
    ("lookhere", {"depth_index": 3, "depth": 3}, "depth"),
]


@pytest.mark.parametrize(("name", "options", "message"), REFUSED)
def test_a_value_out_of_range_is_refused(name: str, options: Options, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(name, native_grid(2, prefix=1), options)


@pytest.mark.parametrize(("name", "head_dim"), [("rope", 10), ("rope_normalized", 6), ("rope_mixed", 7)])
def test_rotation_refuses_a_width_it_cannot_pair(name: str, head_dim: int) -> None:
    with pytest.raises(ValueError, match=f"got {head_dim}"):
        create_encoding(name, HEADS, head_dim, native_grid(2))
