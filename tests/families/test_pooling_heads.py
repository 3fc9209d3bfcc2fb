"""Heads that pool by attention, and images that come cut into patches: against timm's own softmax."""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch
from timm.layers import AttentionPool2d, RotAttentionPool2d
from torch import Tensor, nn

from tests.families.beacon import check_beacon
from vit_rpe.models.families.samples.of_timm import VIT, randomize
from vit_rpe.viz import Recording, record

POOLS: dict[str, Any] = {
    "embedded": lambda: AttentionPool2d(24, feat_size=(3, 4), num_heads=3),
    "embedded-stretched": lambda: AttentionPool2d(24, feat_size=7, num_heads=3, out_features=5),
    "embedded-class-token": lambda: AttentionPool2d(24, (3, 4), num_heads=3, class_token=True, qkv_separate=True),
    "embedded-unpooled": lambda: AttentionPool2d(24, (3, 4), num_heads=3, pool_type=""),
    "rotary": lambda: RotAttentionPool2d(24, ref_feat_size=(3, 4), num_heads=3),
    "rotary-separate": lambda: RotAttentionPool2d(24, ref_feat_size=5, num_heads=3, qkv_separate=True),
    "rotary-base": lambda: RotAttentionPool2d(24, num_heads=3, rope_type="base", out_features=0),
    "rotary-class-token": lambda: RotAttentionPool2d(24, num_heads=3, class_token=True, rope_type="dinov3"),
}


class Net(nn.Module):
    """Features of a convolution, pooled."""

    def __init__(self, pool: nn.Module) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 24, 8, 8)
        self.pool = pool

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(self.stem(x))


def build(case: str) -> nn.Module:
    torch.manual_seed(0)
    return randomize(Net(POOLS[case]())).eval()


def timms(name: str, **options: Any) -> nn.Module:
    torch.manual_seed(0)
    return randomize(timm.create_model(name, **{**VIT, "num_classes": 5, **options})).eval()


def image(*size: int) -> Tensor:
    return torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(1))


def recorded(model: nn.Module, x: Any) -> Recording:
    with torch.no_grad():
        before = model(x)
        with record(model) as seen:
            after = model(x)
    assert torch.equal(before, after)
    return seen


def check_weights(model: nn.Module, x: Any, monkeypatch: pytest.MonkeyPatch) -> Recording:
    """The recording, whose maps were found to be those of the model's softmax and to make its outputs."""
    seen, own = recorded(model, x), list[Tensor]()
    softmax = Tensor.softmax
    for name in seen.names:
        model.get_submodule(name).fused_attn = False  # type: ignore[assignment]
    outputs: dict[str, Tensor] = {}
    handles = [
        model.get_submodule(name).register_forward_hook(lambda _, __, out, name=name: outputs.update({name: out}))
        for name in seen.names
    ]
    with monkeypatch.context() as patch, torch.no_grad():
        patch.setattr(
            Tensor, "softmax", lambda self, *args, **kwargs: own.append(softmax(self, *args, **kwargs)) or own[-1]
        )
        model(x)
    for handle in handles:
        handle.remove()
    assert len(own) == len(seen) >= 1
    for layer, (name, weights) in enumerate(zip(seen.names, own, strict=True)):
        torch.testing.assert_close(seen.attention(layer), weights, rtol=1e-5, atol=1e-6)
        with torch.no_grad():
            made = seen.call(layer).output(seen.attention(layer))
        torch.testing.assert_close(made, outputs[name], rtol=1e-4, atol=1e-5)
    return seen


@pytest.mark.parametrize("case", POOLS)
def test_maps_pooled(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = check_weights(build(case), image(24, 32), monkeypatch)
    assert seen.image == (3, 4)
    assert seen.grids(0)[0].num_prefix == 1
    assert torch.equal(seen.attention(0, query="class"), seen.attention(0)[:, :, 0])
    if case.startswith("rotary"):
        assert float(seen.bias(0).abs().max()) > 1e-2
    for maps in (seen.content, seen.position):
        torch.testing.assert_close(maps(0).sum(-1), torch.ones(2, 3, 13))


@pytest.mark.parametrize("case", ["embedded", "embedded-class-token", "rotary"])
def test_a_beacon_is_seen_where_it_is(case: str) -> None:
    model = build(case)
    if "class" not in case:  # the mean of the patches asks and answers too: a patch changes it everywhere
        model.pool.cls_token = nn.Parameter(torch.randn(1, 1, 24))
    check_beacon(model, image(24, 32), lambda model, x: model(x))


PLAIN: dict[str, tuple[str, dict[str, Any]]] = {
    "refining": ("vit_tiny_patch16_224", {"img_size": (64, 96), "global_pool": "prr"}),
    "refining-no-class-token": (
        "vit_tiny_patch16_224",
        {"img_size": (64, 96), "global_pool": "prr", "class_token": False},
    ),
    "patches-alone": (
        "vit_base_patch16_siglip_gap_224",
        {"img_size": (64, 96), "global_pool": "map", "reg_tokens": 3, "pool_include_prefix": False},
    ),
    "hybrid": ("vit_tiny_r_s16_p8_224", {"img_size": (128, 192)}),
    "naflex": ("naflexvit_base_patch16_gap", {}),
    "naflex-map": ("naflexvit_base_patch16_siglip", {}),
    "naflex-rope": ("naflexvit_base_patch16_gap", {"rope_type": "axial", "pos_embed": "none"}),
}


@pytest.mark.parametrize("case", PLAIN)
def test_maps_of_sequences(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, options = PLAIN[case]
    seen = check_weights(timms(name, **options), image(*options.get("img_size", (64, 96))), monkeypatch)
    assert seen.image == (4, 6)
    assert all(sight is not None for sight in seen.sights.values())
    for layer, sight in enumerate(seen.sights.values()):
        row = seen.attention(layer, query="mean" if sight.pools else (3, 4))
        torch.testing.assert_close(row.sum(-1), torch.ones(row.shape[:-1]))


def test_a_head_over_patches_alone_has_no_prefix() -> None:
    name, options = PLAIN["patches-alone"]
    seen = recorded(timms(name, **options), image(64, 96))
    assert [seen.map_grid(layer).num_prefix for layer in range(3)] == [3, 3, 0]


def patches(rows: int, columns: int, padding: int = 0) -> dict[str, Tensor]:
    """Two images in patches of 16, as a loader of NaFlex gives them."""
    number = rows * columns
    places = torch.cartesian_prod(torch.arange(rows), torch.arange(columns))
    coordinates = torch.cat([places, torch.zeros(padding, 2, dtype=places.dtype)]).expand(2, -1, -1)
    valid = (torch.arange(number + padding) < number).expand(2, -1)
    values = torch.randn(2, number + padding, 16 * 16 * 3, generator=torch.Generator().manual_seed(1))
    return {"patches": values, "patch_coord": coordinates, "patch_valid": valid}


NAFLEX = ("naflex", "naflex-map", "naflex-rope")


@pytest.mark.parametrize("case", NAFLEX)
def test_one_size_a_batch(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, options = PLAIN[case]
    seen = check_weights(timms(name, **options), patches(3, 5), monkeypatch)
    assert seen.image == (3, 5)


def test_patches_on_no_common_grid_have_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Padding, or patches of which some are left out: maps by the number of a token remain."""
    name, options = PLAIN["naflex-map"]
    model = timms(name, **options)
    seen = check_weights(model, patches(3, 5, padding=2), monkeypatch)
    assert seen.image is None
    assert bool((seen.attention(0)[:, :, :15, 15:] == 0).all())
    with pytest.raises(ValueError, match="must name 1 numbers"):
        seen.attention(0, query=(1, 1))
    some = {key: value[:, :14] for key, value in patches(3, 5).items()}
    assert recorded(model, some).image is None


def test_gemma4_in_patches(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"head_dim": 16, "intermediate_size": 32, "position_embedding_size": 64}
    model = timms("gemma4_vit_167m", **small)
    assert check_weights(model, patches(3, 5), monkeypatch).image == (3, 5)
    assert check_weights(model, patches(3, 5, padding=2), monkeypatch).image is None
