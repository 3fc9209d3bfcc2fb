"""One encoding, several at once and a frozen one are used alike; old names warn and give the same."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import nn

from tests.encodings.build import HEAD_DIM, HEADS, draw, native_grid
from vit_rpe import encodings
from vit_rpe.encodings import Card, FrozenPosition, PositionEncoding, create_encoding, find_encodings
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.terms import PositionTerms, dense_bias

GRID = native_grid(2, prefix=1)
SPECS = {"one": "bias", "several": ["bias", "rope", {"name": "t5", "num_buckets": 8, "max_distance": 9}]}


def as_they_are(terms: PositionTerms) -> PositionTerms:
    return terms


def create(kind: str, *, frozen: bool = False) -> PositionEncoding:
    encoding = create_encoding(SPECS[kind], HEADS, HEAD_DIM, GRID)
    for number, part in enumerate(encoding.parts()):
        draw(part, seed=number)
    return FrozenPosition(encoding.eval(), GRID, "cpu", as_they_are) if frozen else encoding


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("kind", SPECS)
def test_one_several_and_frozen_are_the_same_kind_of_thing(kind: str, frozen: bool) -> None:
    plain, encoding = create(kind), create(kind, frozen=frozen)
    assert isinstance(encoding, PositionEncoding)
    assert [part.name for part in encoding.parts()] == [part.name for part in plain.parts()]
    assert encoding.no_weight_decay() == plain.no_weight_decay() == {name for name, _ in plain.named_parameters()}
    assert list(encoding.state_dict()) == list(plain.state_dict())
    torch.testing.assert_close(dense_bias(encoding(GRID, GRID)), dense_bias(plain(GRID, GRID)))
    assert encoding.card.paper == plain.card.paper
    assert copy.deepcopy(encoding).name == encoding.name
    larger = TokenGrid((4, 5), num_prefix=1)
    if frozen:
        for change in (lambda: encoding.resized(larger), encoding.zero_, encoding.reset_parameters):
            with pytest.raises(ValueError, match=r"frozen: call unfreeze\(\)"):
                change()
    else:
        assert {part.grid for part in encoding.resized(larger).parts()} == {larger}


def test_parameters_of_several_keep_their_names() -> None:
    encoding = create("several")
    names = ["parts.bias.table", "parts.t5.table_0", "parts.t5.table_1"]
    assert list(encoding.state_dict()) == names
    assert encoding.get_submodule("parts.bias") is encoding.parts()[0]
    assert encoding.card.per_pair is False
    assert create_encoding(["bias", "fire"], HEADS, HEAD_DIM, GRID).card.per_pair
    assert not create_encoding(["bias", "rope_normalized"], HEADS, HEAD_DIM, GRID).card.supports_kv_cache


def test_every_encoding_of_a_model_is_found_once() -> None:
    layer = nn.ModuleDict({"one": create("one"), "several": create("several"), "frozen": create("one", frozen=True)})
    found = ["one", "several.parts.bias", "several.parts.rope", "several.parts.t5"]
    assert [path for path, _ in find_encodings(layer)] == found


def test_a_list_of_one_is_that_one_and_an_empty_one_is_none() -> None:
    assert create_encoding(["bias", "none"], HEADS, HEAD_DIM, GRID).name == "bias"
    assert create_encoding([], HEADS, HEAD_DIM, GRID).name == "none"
    with pytest.raises(ValueError, match="more than once"):
        create_encoding(["bias", "bias"], HEADS, HEAD_DIM, GRID)


def test_options_must_be_known_to_resize() -> None:
    built = encodings.RelativeBias(HEADS, HEAD_DIM, GRID, max_distance=1)
    with pytest.raises(ValueError, match="create_encoding"):
        built.resized(TokenGrid((4, 5)))


def test_old_functions_are_aliases() -> None:
    one, several = create("one"), create("several")
    larger = TokenGrid((4, 5), num_prefix=1)
    with pytest.warns(DeprecationWarning, match=r"create_encoding"):
        assert encodings.create_position(None, HEADS, HEAD_DIM, GRID) is None
    with pytest.warns(DeprecationWarning, match=r"create_encoding"):
        built = encodings.create_position(["bias", "rope"], HEADS, HEAD_DIM, GRID)
    assert built is not None
    with pytest.warns(DeprecationWarning, match=r"parts\(\)"):
        assert encodings.encodings_of(built) == list(built.parts())
    with pytest.warns(DeprecationWarning, match=r"card\.per_pair"):
        assert not encodings.is_per_pair(built)
    with pytest.warns(DeprecationWarning, match=r"encoding\.resized"):
        assert encodings.resized(one, larger).grid == larger
    with pytest.warns(DeprecationWarning, match=r"position\.resized"):
        assert encodings.resized_position(several, larger).grid == larger


def test_old_names_of_a_card() -> None:
    with pytest.warns(DeprecationWarning, match="elsewhere is now extrapolation"):
        card = Card(paper="a paper", adds=("bias",), elsewhere="everywhere")
    with pytest.warns(DeprecationWarning, match="decodes is now supports_kv_cache"):
        card = Card(paper="a paper", adds=("bias",), extrapolation="everywhere", decodes=False)
    assert card == Card("a paper", ("bias",), "everywhere", supports_kv_cache=False)
    with pytest.warns(DeprecationWarning, match="extrapolation"):
        assert card.elsewhere == "everywhere"
    with warnings.catch_warnings(), pytest.raises(AttributeError, match="no 'colour'"):
        _ = card.colour
