"""Every option of every encoding does something: it changes the output or the parameters, or it is refused."""

from __future__ import annotations

from inspect import Parameter
from types import NoneType
from typing import Any, get_args

import pytest
import torch

from tests.encodings.build import HEAD_DIM, HEADS, axes_of, build, draw, inputs, native_grid, output
from tests.oracles import ORACLES
from vit_rpe.encodings import (
    PositionEncoding,
    create_encoding,
    encoding_options,
    list_encodings,
    parse_specs,
)
from vit_rpe.position.geometry import TokenGrid

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
    """On every number of axes, or it is refused there; and it is not refused everywhere."""
    grids = [wide_grid(axes, prefix) for axes in axes_of(name) for prefix in (1, 5, 9)]
    accepted = {grid.ndim: grid for grid in reversed(grids) if fresh(name, grid, changed) is not None}
    assert accepted
    for grid in accepted.values():
        assert differs(name, grid, base, changed), f"{changed} is as {base} on {grid}"


def differs(name: str, grid: TokenGrid, base: Options, changed: Options) -> bool:
    """Whether two sets of options differ in parameters, initial values, output in training, or tables made larger.

    Where the rest of the options is refused without the one in question, the comparison is with the defaults.
    """
    one, other = fresh(name, grid, base) or fresh(name, grid, {}), fresh(name, grid, changed)
    assert one is not None
    assert other is not None
    if shapes(one) != shapes(other):
        return True
    if any(not torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True)):
        return True
    tensors = inputs(grid, grid)
    outputs = []
    for encoding in (one, other):
        draw(encoding, seed=1)
        torch.manual_seed(4)
        outputs.append(output(encoding.train(), grid, grid, tensors))
    if (outputs[0] - outputs[1]).abs().max() > 1e-3:
        return True
    larger = TokenGrid(tuple(2 * size + 1 for size in one.grid.size), num_prefix=1)
    tables = [encoding.resized(larger).state_dict() for encoding in (one, other)]
    return any((tables[0][key] - tables[1][key]).abs().max() > 1e-3 for key in tables[0])


def wide_grid(axes: int, prefix: int) -> TokenGrid:
    """Wide enough for buckets of far offsets, whatever the number of axes."""
    return TokenGrid((2, 3, 7)[3 - axes :], num_prefix=prefix)


def fresh(name: str, grid: TokenGrid, options: Options) -> PositionEncoding | None:
    """An encoding with its own initial values; None where the options are refused."""
    torch.manual_seed(3)
    spec = {"name": name, **options}
    try:
        return create_encoding(spec, HEADS, HEAD_DIM, grid, dtype=torch.float64)
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
    """Values for prefix tokens exist where they are asked for, and are refused without such tokens."""
    for number in (1, 4):
        encoding = build(name, native_grid(2, number), {"prefix": prefix})
        assert ("prefix_bias" in shapes(encoding)) == (prefix == "learned")
    if prefix == "learned":
        with pytest.raises(ValueError, match=r"prefix='learned' is for pairs with class or register tokens"):
            create_encoding({"name": name, "prefix": prefix}, HEADS, HEAD_DIM, native_grid(2, 0))


def wrong_values(annotation: Any) -> list[Any]:
    """Values that no option of this type takes, though Python would often go on with them."""
    kinds = {kind: kind in (get_args(annotation) or (annotation,)) for kind in (bool, int, float, str, NoneType)}
    found: list[Any] = [{}, [None]]
    found += [] if kinds[bool] else [True, False]
    found += [] if kinds[str] else ["false", "90"]
    found += [] if kinds[NoneType] else [None]
    found += [] if kinds[float] else [2.0]
    found += [] if kinds[int] or kinds[float] else [1]
    return [*found, float("nan"), float("inf")]


@pytest.mark.parametrize("name", list_encodings())
def test_a_value_of_another_type_is_refused(name: str) -> None:
    for option, parameter in encoding_options(name).items():
        assert parameter.annotation is not Parameter.empty, option
        for value in wrong_values(parameter.annotation):
            with pytest.raises(ValueError, match=f"{option} of rpe '{name}' must be"):
                build(name, native_grid(2, prefix=1), {option: value})


@pytest.mark.parametrize("rpe", [5, True, 1.5, object(), {"bias"}, [5], [None], {"name": 3}, {}])
def test_what_is_no_description_of_an_encoding_is_refused(rpe: Any) -> None:
    with pytest.raises(ValueError, match="rpe must be"):
        parse_specs(rpe)


REFUSED: list[tuple[str, Options, str]] = [
    ("bias", {"max_distance": -1}, "max_distance=-1"),
    ("bias", {"max_distance": (1, 2, 3)}, "max_distance"),
    ("bias", {"init_std": -0.1}, "init_std of rpe 'bias' must be at least 0"),
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


@pytest.mark.parametrize(("name", "options"), [("alibi", {"metric": "l1"}), ("rope_normalized", {"normalize": "max"})])
def test_a_choice_between_axes_is_refused_where_there_is_one(name: str, options: Options) -> None:
    build(name, native_grid(2), options)
    with pytest.raises(ValueError, match="in 1-D all are the same"):
        build(name, native_grid(1), options)
