"""An offset keeps its value at every size, wherever the encoding lives; pooled and whole grids share one lattice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.encodings.build import HEAD_DIM, HEADS, SCALE, build, inputs, output
from tests.oracles import ORACLES
from vit_rpe.attention import attention_weights
from vit_rpe.encodings import PositionEncoding, create_encoding, encoding_options, list_encodings
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.terms import dense_bias

TRAINED, LARGER = TokenGrid((8, 5)), TokenGrid((16, 9))
NATIVE = [name for name in list_encodings() if "native" in encoding_options(name)]


def step_down(encoding: PositionEncoding) -> torch.Tensor:
    """The bias of the offset (1, 0), (H,)."""
    bias = dense_bias(encoding(TokenGrid((2, 1)), TokenGrid((2, 1))))
    assert bias is not None
    return bias[:, 1, 0]


@pytest.mark.parametrize("mode", ["swinv2", "log"])
def test_a_resized_network_of_offsets_says_the_same(mode: str) -> None:
    trained = build("cpb", TRAINED, {"mode": mode})
    larger = trained.resized(LARGER)
    torch.testing.assert_close(step_down(larger), step_down(trained))
    torch.testing.assert_close(step_down(larger.resized(TokenGrid((3, 20)))), step_down(trained))
    rebuilt = create_encoding(larger.spec or "", HEADS, HEAD_DIM, LARGER, dtype=torch.float64)
    rebuilt.load_state_dict(dict(trained.state_dict()))
    torch.testing.assert_close(step_down(rebuilt), step_down(trained))


def test_weights_say_what_size_they_were_trained_on(tmp_path: Path) -> None:
    trained, target = build("cpb", TRAINED), build("cpb", LARGER, seed=2)
    torch.save({"state": trained.state_dict()}, tmp_path / "weights.pt")
    target.load_state_dict(torch.load(tmp_path / "weights.pt", weights_only=True)["state"])
    torch.testing.assert_close(step_down(target), step_down(trained))
    assert target.spec == {"name": "cpb", "native": (8, 5)}
    assert set(trained.state_dict()) == {name for name, _ in trained.named_parameters()}


def test_weights_that_do_not_say_count_as_native() -> None:
    trained, target = build("cpb", TRAINED), build("cpb", LARGER, seed=2)
    target.load_state_dict(dict(trained.state_dict()))
    assert target.native == LARGER.size
    told = build("cpb", LARGER, {"native": (8, 5)}, seed=2)
    told.load_state_dict(dict(trained.state_dict()))
    torch.testing.assert_close(step_down(told), step_down(trained))


def test_a_bad_native_size_is_refused() -> None:
    with pytest.raises(ValueError, match="one positive size per axis"):
        create_encoding({"name": "cpb", "native": (8,)}, HEADS, HEAD_DIM, LARGER)
    with pytest.raises(ValueError, match="mode='swinv2'"):
        create_encoding({"name": "cpb", "native": (8, 5), "mode": "log"}, HEADS, HEAD_DIM, LARGER)


def lattice_cases() -> list[Any]:
    found: list[Any] = [pytest.param(name, {}, id=name) for name in list_encodings()]
    return [*found, pytest.param("rope", {"reference": (7, 5)}, id="rope-reference")]


@pytest.mark.parametrize("pooled", ["queries", "keys"])
@pytest.mark.parametrize(("name", "options"), lattice_cases())
def test_pooled_tokens_without_an_extent_lie_on_the_lattice_of_the_others(
    name: str, options: dict[str, Any], pooled: str
) -> None:
    """Every second of 4 x 4 tokens: its terms are those of the same places among all tokens."""
    whole = TokenGrid((4, 4))
    few = TokenGrid((2, 2), stride=(2, 2))
    encoding = build(name, whole, options)
    if name == "decomposed":  # pooled keys have rows of their own, MViTv2
        return
    places = torch.tensor([0, 2, 8, 10])
    q, k, _ = inputs(whole, whole)
    full = attention_weights(
        q, k, encoding(whole, whole)._replace(visible=None, offset_visible=None), scale=SCALE
    ).log()
    if pooled == "queries":
        terms = encoding(few, whole)._replace(visible=None, offset_visible=None)
        torch.testing.assert_close(attention_weights(q[:, :, places], k, terms, scale=SCALE).log(), full[:, :, places])
        return
    terms = encoding(whole, few)._replace(visible=None, offset_visible=None)
    among = full[..., places].log_softmax(-1)
    torch.testing.assert_close(attention_weights(q, k[:, :, places], terms, scale=SCALE).log(), among)


@pytest.mark.parametrize("name", ["rope_normalized", "fire"])
def test_an_extent_that_is_said_counts(name: str) -> None:
    whole = TokenGrid((4, 4))
    few = TokenGrid((2, 2), stride=(2, 2))
    encoding = build(name, whole)
    tensors = inputs(few, whole)
    said = output(encoding, replace(few, extent=(4, 4)), whole, tensors)
    torch.testing.assert_close(output(encoding, few, whole, tensors), said)


def test_offset_zero_is_a_matter_of_the_native_size_for_fire_alone() -> None:
    assert [name for name in list_encodings() if getattr(ORACLES[name], "NATIVE_SIZE_COUNTS", False)] == ["fire"]
