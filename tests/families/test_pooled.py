"""Pooled keys and queries, tables over whole images and pooling heads of timm, against its own softmax."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vit_rpe
from tests.families.beacon import check_beacon
from vit_rpe.models.families.samples.of_timm import POOLED, sample
from vit_rpe.viz import Recording, record


def build(case: str) -> nn.Module:
    return sample(case)[0]


def image(case: str) -> Tensor:
    return sample(case)[1]


def recorded(case: str) -> Recording:
    model, x = build(case), image(case)
    with torch.no_grad():
        before = model(x)
        with record(model) as seen:
            after = model(x)
    assert torch.equal(before, after)
    return seen


@pytest.mark.filterwarnings("ignore:left out of the recording")
@pytest.mark.parametrize("case", POOLED)
def test_maps_are_timms_own(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, plain = recorded(case), build(case)
    own: list[Tensor] = []
    softmax = Tensor.softmax

    def kept(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        own.append(softmax(self, *args, **kwargs))
        return own[-1]

    for name in seen.names:
        plain.get_submodule(name).fused_attn = False  # type: ignore[assignment]
    monkeypatch.setattr(Tensor, "softmax", kept)
    with torch.no_grad():
        plain(image(case))
    monkeypatch.undo()
    if case == "xcit":
        own = [weights for weights in own if weights.shape[-2] == 1]
    assert len(own) == len(seen) >= 2
    for layer, (weights, sight) in enumerate(zip(own, seen.sights.values(), strict=True)):
        found = seen.attention(layer)
        torch.testing.assert_close(found, weights.reshape(found.shape), rtol=1e-5, atol=1e-6)
        assert sight is not None
        row = seen.attention(layer, query="mean" if sight.pools else (2, 3))
        assert row.shape[-1] == seen.map_grid(layer).num_tokens
        if sight.is_whole and sight.k_grid.size[0] <= sight.image[0]:  # no padding
            torch.testing.assert_close(row.sum(-1), torch.ones(row.shape[:-1]))


@pytest.mark.parametrize("case", ["beit", "relpos", "srelpos", "siglip", "pe"])
def test_a_beacon_is_seen_where_it_is(case: str) -> None:
    check_beacon(build(case), image(case), lambda model, x: model(x))


def cells(seen: Recording, layer: int, query: tuple[int, int]) -> list[list[int]]:
    """First and last row, first and last column of where a map is not zero."""
    places = (seen.attention(layer, query=query)[0].sum(0) > 0).reshape(seen.image or ()).nonzero()
    return [places.amin(0).tolist(), places.amax(0).tolist()]


def test_windows_and_pooled_keys_lie_where_they_are() -> None:
    twins = recorded("twins")
    assert twins.image == (16, 24)
    assert cells(twins, 0, (8, 6)) == [[7, 0], [13, 6]]
    assert cells(twins, 1, (8, 6)) == [[0, 0], [15, 23]]
    patches = twins.attention(1, query=(8, 6)).reshape(2, 2, 16, 24)
    assert torch.equal(patches[..., 0, 0], patches[..., 7, 7])  # one key for 8 x 8 tokens
    sam2 = recorded("sam2")
    assert sam2.image == (24, 40)
    assert cells(sam2, 0, (9, 17)) == [[8, 16], [15, 23]]
    assert cells(sam2, 1, (9, 17)) == [[8, 16], [15, 23]]  # queries pooled by two, keys not


def test_pooled_queries_are_the_maximum() -> None:
    """Of the weights' logits nothing is linear in the patch, so the two by two patches of a query have one map."""
    seen = recorded("sam2")
    maps = [seen.attention(1, query=at) for at in ((8, 16), (8, 17), (9, 16), (9, 17))]
    assert all(torch.equal(maps[0], each) for each in maps[1:])
    assert not torch.equal(maps[0], seen.attention(1, query=(10, 16)))


def test_channel_attention_is_left_out_with_a_warning() -> None:
    model = build("xcit")
    with pytest.warns(UserWarning, match="timm.models.xcit.XCA has no map over tokens"), record(model) as seen:
        model(image("xcit"))
    assert seen.names == ["cls_attn_blocks.0.attn", "cls_attn_blocks.1.attn"]
    with pytest.raises(ValueError, match="names no query of a layer that pools"):
        seen.attention(0, query=(0, 0))


def test_a_table_is_not_lost_without_a_word() -> None:
    with pytest.raises(
        ValueError, match=r"timm\.models\.beit\.Attention; some such models keep their position by vit_rpe\.from_timm"
    ):
        vit_rpe.replace_attention(build("beit"))
