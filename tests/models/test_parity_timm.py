"""Converted models compute what timm's own compute, on large random weights, square and not, and at other sizes."""

from __future__ import annotations

import copy
from contextlib import nullcontext

import pytest
import timm
import torch

import vit_rpe
from tests.models.tiny import randomize
from vit_rpe.commands.parity import PATHS, compare
from vit_rpe.models.exchange.coverage import randomize as fill

NAMES = [name for names in PATHS.values() for name in names]
NARROW = {"depth": 2, "embed_dim": 48, "num_heads": 3}
RELATIVE = [name for name in NAMES if any(part in name for part in ("relpos", "beit", "rope", "dinov3"))]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("grid", [(3, 5), (4, 4)])
def test_logits_and_features_are_those_of_timm(name: str, grid: tuple[int, int]) -> None:
    found = compare(name, grid, **NARROW)
    assert found.scale > 0.5, "the comparison says nothing on outputs near zero"
    assert found.logits <= 1e-4
    assert found.features <= 1e-4


@pytest.mark.parametrize("name", ["eva02_tiny_patch14_224", "eva02_base_patch14_224", "vit_base_patch16_siglip_224"])
def test_models_without_an_entry_point_convert_too(name: str) -> None:
    assert compare(name, (2, 3), **NARROW).logits <= 1e-4


@pytest.mark.parametrize("name", RELATIVE)
def test_the_encoding_matters(name: str) -> None:
    """Without it the same weights give something else: the comparison above does see the encoding."""
    side = timm.create_model(name, device="meta").patch_embed.patch_size[0]
    theirs = timm.create_model(name, img_size=(3 * side, 5 * side), num_classes=7, **NARROW).eval()
    fill(theirs, 3)
    ours = vit_rpe.from_timm(theirs)
    has_weights = "relpos" in name or "beit" in name or "mixed" in name
    with pytest.warns(UserWarning, match="left out") if has_weights else nullcontext():
        without = vit_rpe.from_timm(theirs, rpe="none")
    x = torch.randn(2, 3, 3 * side, 5 * side)
    assert (ours(x) - without(x)).abs().max() > 1e-3


@pytest.mark.parametrize(
    "name",
    [
        "vit_tiny_patch16_224",
        "vit_small_patch14_reg4_dinov2",
        "vit_relpos_small_patch16_224",
        "vit_small_patch16_rope_ape_224",
        "vit_small_patch16_rope_mixed_224",
        "vit_betwixt_patch16_rope_reg4_gap_256",
        "vit_small_patch16_dinov3",
    ],
)
def test_another_resolution_is_resampled_as_in_timm(name: str) -> None:
    side = timm.create_model(name, device="meta").patch_embed.patch_size[0]
    theirs = timm.create_model(name, img_size=(4 * side, 6 * side), num_classes=7, **NARROW).eval()
    fill(theirs, 4)
    ours = vit_rpe.from_timm(theirs)
    created = vit_rpe.from_timm(theirs, img_size=(5 * side, 3 * side))
    for model in (theirs, ours):
        model.set_input_size((5 * side, 3 * side))
    x = torch.randn(2, 3, 5 * side, 3 * side)
    torch.testing.assert_close(ours(x), theirs(x), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(created(x), ours(x))


def test_table_of_relpos_converts_with_and_without_class_token() -> None:
    for args in ({}, {"class_token": True, "global_pool": "token"}, {"shared_rel_pos": True}):
        theirs = timm.create_model(
            "test_vit_relpos", img_size=(48, 80), depth=2, rel_pos_type="bias", num_classes=5, **args
        )
        randomize(theirs)
        ours = vit_rpe.from_timm(theirs)
        x = torch.randn(2, 3, 48, 80)
        torch.testing.assert_close(ours(x), theirs(x), atol=1e-4, rtol=1e-4)


def test_training_mode_dtype_and_preprocessing_are_kept() -> None:
    theirs = timm.create_model("vit_tiny_patch16_224", img_size=(32, 48), depth=1, num_classes=3).double().train()
    ours = vit_rpe.from_timm(theirs)
    assert ours.training
    assert ours.patch_embed.proj.weight.dtype == torch.float64
    assert ours.pretrained_cfg["mean"] == theirs.pretrained_cfg["mean"]
    x = torch.randn(1, 3, 32, 48, dtype=torch.float64)
    torch.testing.assert_close(ours.eval()(x), copy.deepcopy(theirs).eval()(x))
