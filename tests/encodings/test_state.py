"""What an encoding keeps: parameters and nothing else, so that nothing can go stale."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from timm.utils import ModelEmaV3

from tests.encodings.build import HEAD_DIM, HEADS, build, inputs, native_grid, output, refuses, variants
from vit_rpe.attention import attend
from vit_rpe.encodings import PositionEncoding, create_encoding, encoding_class, encoding_options, list_encodings
from vit_rpe.position.terms import PositionTerms

GRID = native_grid(2, prefix=1)


def all_variants() -> list[Any]:
    """Every encoding with every option set of its oracle file, in 2-D."""
    return [
        pytest.param(name, options, id=f"{name}-{number}")
        for name in list_encodings()
        for number, options in enumerate(variants(name))
        if not refuses(name, options, GRID)
    ]


def fresh_output(encoding: PositionEncoding, tensors: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The output of a newly built encoding that holds the same parameters."""
    new = create_encoding(encoding.spec, HEADS, HEAD_DIM, encoding.grid, dtype=torch.float64).eval()
    new.load_state_dict(encoding.state_dict())
    return output(new, GRID, GRID, tensors)


@pytest.mark.parametrize(("name", "options"), all_variants())
def test_state_is_parameters_only(name: str, options: dict[str, Any]) -> None:
    encoding = build(name, GRID, options)
    encoding(GRID, GRID)
    assert not list(encoding.buffers())
    assert set(encoding.state_dict()) == {name for name, _ in encoding.named_parameters()}


@pytest.mark.parametrize("name", list_encodings())
def test_meta_construction_and_strict_load(name: str) -> None:
    original = build(name, GRID)
    for encoding in (
        create_encoding(name, HEADS, HEAD_DIM, GRID, device="meta", dtype=torch.float64),
        _built_under_meta(name),
    ):
        encoding = encoding.to_empty(device="cpu").eval()
        encoding.load_state_dict(original.state_dict(), strict=True)
        tensors = inputs(GRID, GRID)
        torch.testing.assert_close(output(encoding, GRID, GRID, tensors), output(original, GRID, GRID, tensors))


def _built_under_meta(name: str) -> PositionEncoding:
    with torch.device("meta"):
        return create_encoding(name, HEADS, HEAD_DIM, GRID, dtype=torch.float64)


@pytest.mark.parametrize("name", list_encodings())
def test_to_empty_and_reset_gives_usable_parameters(name: str) -> None:
    encoding = create_encoding(name, HEADS, HEAD_DIM, GRID, device="meta").to_empty(device="cpu")
    for parameter in encoding.parameters():
        parameter.data.fill_(float("nan"))
    encoding.reset_parameters()
    assert all(parameter.isfinite().all() for parameter in encoding.parameters())


def add_in_place(encoding: PositionEncoding) -> None:
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.mul_(0.5).add_(0.25)


def add_to_data(encoding: PositionEncoding) -> None:
    for parameter in encoding.parameters():
        parameter.data = parameter.data * 0.5 + 0.25


def load_others(encoding: PositionEncoding) -> None:
    encoding.load_state_dict({name: value * 0.5 + 0.25 for name, value in encoding.state_dict().items()})


@pytest.mark.parametrize("change", [add_in_place, add_to_data, load_others])
@pytest.mark.parametrize("name", list_encodings())
def test_a_change_in_eval_shows_in_the_next_forward(name: str, change: Callable[[PositionEncoding], None]) -> None:
    encoding = build(name, GRID)
    tensors = inputs(GRID, GRID)
    with torch.no_grad():
        before = output(encoding, GRID, GRID, tensors)
        change(encoding)
        after = output(encoding, GRID, GRID, tensors)
        torch.testing.assert_close(after, fresh_output(encoding, tensors))
    if list(encoding.parameters()):
        assert not torch.equal(before, after)


@pytest.mark.parametrize("name", list_encodings())
def test_a_moving_average_shows_in_the_next_forward(name: str) -> None:
    encoding = build(name, GRID)
    if not list(encoding.parameters()):  # nothing to average, and the average refuses to
        return
    average = ModelEmaV3(encoding, decay=0.5)
    tensors = inputs(GRID, GRID)
    with torch.no_grad():
        output(average.module, GRID, GRID, tensors)
        load_others(encoding)
        average.update(encoding)
        torch.testing.assert_close(output(average.module, GRID, GRID, tensors), fresh_output(average.module, tensors))


@pytest.mark.parametrize("name", list_encodings())
def test_deepcopy_after_a_training_forward_and_two_steps(name: str) -> None:
    encoding = build(name, GRID).train()
    tensors = inputs(GRID, GRID)
    output(encoding, GRID, GRID, tensors).sum().backward()
    twin = copy.deepcopy(encoding).eval()
    torch.testing.assert_close(output(twin, GRID, GRID, tensors), output(encoding.eval(), GRID, GRID, tensors))
    if not list(encoding.parameters()):
        return
    optimizer = torch.optim.SGD(encoding.train().parameters(), lr=0.1)
    before = copy.deepcopy(encoding.state_dict())
    for _ in range(2):
        optimizer.zero_grad()
        output(encoding, GRID, GRID, tensors).square().sum().backward()
        optimizer.step()
    assert any(not torch.equal(before[key], value) for key, value in encoding.state_dict().items())


@pytest.mark.parametrize("prefix", [0, 1, 4])
@pytest.mark.parametrize(("name", "options"), all_variants())
def test_every_parameter_gets_a_gradient(name: str, options: dict[str, Any], prefix: int) -> None:
    grid = native_grid(2, prefix)
    encoding = build(name, grid, options).train()
    output(encoding, grid, grid, inputs(grid, grid)).square().sum().backward()
    unused = [name for name, own in encoding.named_parameters() if own.requires_grad and own.grad is None]
    assert not unused, f"unused: {unused}"


@pytest.mark.parametrize("prefix", [0, 1])
@pytest.mark.parametrize(("name", "options"), all_variants())
def test_zero_means_no_position_or_is_refused(name: str, options: dict[str, Any], prefix: int) -> None:
    grid = native_grid(2, prefix)
    encoding = build(name, grid, options)
    try:
        encoding.zero_()
    except ValueError:
        assert not encoding.card.additive or prefix > 0
        return
    tensors = inputs(grid, grid)
    nothing = attend(*tensors, PositionTerms(), scale=HEAD_DIM**-0.5 * encoding(grid, grid).scale)
    torch.testing.assert_close(output(encoding, grid, grid, tensors), nothing)


@pytest.mark.parametrize(("name", "options"), all_variants())
def test_no_weight_decay_spares_all_but_matrices(name: str, options: dict[str, Any]) -> None:
    encoding = build(name, GRID, options)
    spared = encoding.no_weight_decay()
    parameters = dict(encoding.named_parameters())
    assert spared <= set(parameters)
    for other in set(parameters) - spared:
        assert other.endswith("weight")
        assert parameters[other].ndim == 2


@pytest.mark.parametrize(("name", "options"), all_variants())
def test_spec_survives_json(name: str, options: dict[str, Any]) -> None:
    encoding = build(name, GRID, options)
    spec = json.loads(json.dumps(encoding.spec))
    again = create_encoding(spec, HEADS, HEAD_DIM, GRID, dtype=torch.float64).eval()
    again.load_state_dict(encoding.state_dict())
    tensors = inputs(GRID, GRID)
    torch.testing.assert_close(output(again, GRID, GRID, tensors), output(encoding, GRID, GRID, tensors))
    assert name in repr(encoding)


@pytest.mark.parametrize("name", list_encodings())
def test_card_is_filled_in(name: str) -> None:
    card = encoding_class(name).card
    assert card.extrapolation
    assert set(card.adds) <= set(PositionTerms._fields)
    assert name == "none" or "arXiv" in card.paper
    terms = build(name, GRID, variants(name)[0])(GRID, GRID)
    filled = {field for field in PositionTerms._fields if field not in ("grids", "scale")}
    filled = {field for field in filled if getattr(terms, field) not in (None, ())}
    assert filled <= set(card.adds)


@pytest.mark.parametrize("name", list_encodings())
def test_wrong_head_count_is_an_error(name: str) -> None:
    more = create_encoding(name, HEADS + 1, HEAD_DIM, GRID)
    encoding = create_encoding(name, HEADS, HEAD_DIM, GRID)
    if all(a.shape == b.shape for a, b in zip(more.state_dict().values(), encoding.state_dict().values(), strict=True)):
        encoding.load_state_dict(more.state_dict())
        return
    with pytest.raises(RuntimeError, match="shape"):
        encoding.load_state_dict(more.state_dict())


@pytest.mark.parametrize("name", list_encodings())
def test_unknown_option_names_the_closest(name: str) -> None:
    options = list(encoding_options(name))
    with pytest.raises(ValueError, match=f"rpe '{name}' has no option 'zzz'"):
        create_encoding({"name": name, "zzz": 1}, HEADS, HEAD_DIM, GRID)
    for option in options:
        with pytest.raises(ValueError, match=f"did you mean '{option}'"):
            create_encoding({"name": name, option + "x": 1}, HEADS, HEAD_DIM, GRID)


def test_unknown_encoding_names_the_closest() -> None:
    with pytest.raises(ValueError, match="did you mean 'rope_mixed'"):
        create_encoding("rope_mixd", HEADS, HEAD_DIM, GRID)
