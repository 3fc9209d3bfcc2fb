"""Pooled keys and queries, tables over whole images and pooling heads of timm, against its own softmax."""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn

import vit_rpe
from tests.families.beacon import check_beacon
from tests.families.cases import randomize
from vit_rpe.viz import Recording, record

VIT = {"img_size": (64, 96), "depth": 2, "embed_dim": 24, "num_heads": 3}
TWINS = {"depths": (2, 2, 2, 2), "embed_dims": (12, 12, 24, 24), "num_heads": (2, 2, 3, 3)}
SAM2 = {"embed_dim": 12, "stages": (1, 2, 2, 1), "global_att_blocks": (4,), "window_spec": (8, 4, 6, 7)}
CASES: dict[str, tuple[str, dict[str, Any], tuple[int, int]]] = {
    "twins": ("twins_svt_small", {"img_size": (64, 96), **TWINS}, (64, 96)),
    "sam2": ("sam2_hiera_tiny", SAM2, (96, 160)),
    "beit": ("beit_base_patch16_224", VIT, (64, 96)),
    "relpos": ("vit_relpos_medium_patch16_cls_224", VIT, (64, 96)),
    "srelpos": ("vit_srelpos_small_patch16_224", VIT, (64, 96)),
    "siglip": ("vit_base_patch16_siglip_224", VIT, (64, 96)),
    "pe": ("vit_pe_core_tiny_patch16_384", VIT, (64, 96)),
    "xcit": ("xcit_nano_12_p16_224", {"img_size": (64, 96), "depth": 1, "embed_dim": 24, "num_heads": 3}, (64, 96)),
}


def build(case: str) -> nn.Module:
    name, small, _ = CASES[case]
    torch.manual_seed(0)
    return randomize(timm.create_model(name, num_classes=5, **small)).eval()


def image(case: str) -> Tensor:
    return torch.randn(2, 3, *CASES[case][2], generator=torch.Generator().manual_seed(1))


def recorded(case: str) -> Recording:
    model, x = build(case), image(case)
    with torch.no_grad():
        before = model(x)
        with record(model) as seen:
            after = model(x)
    assert torch.equal(before, after)
    return seen


@pytest.mark.filterwarnings("ignore:left out of the recording")
@pytest.mark.parametrize("case", CASES)
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
