"""What people get wrong with from_timm, add_rpe, sizes and files: one clear line each, and nothing half done."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file

import vit_rpe
from tests.models.tiny import images, randomize, tiny

TIMM_VIT = {"img_size": (16, 24), "patch_size": 4, "embed_dim": 24, "depth": 2, "num_heads": 3, "num_classes": 5}


def plain(**kwargs: Any) -> torch.nn.Module:
    return randomize(timm.create_model("vit_tiny_patch16_224", **{**TIMM_VIT, **kwargs}))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("vit_tiny_patch16_224.augreg_in22k", r"'augreg_in22k' \(did you mean 'augreg_in21k'\?\)"),
        ("vit_base_patch16_siglip_224.web", "unknown tag of vit_base_patch16_siglip_224 'web'"),
        ("vit_relpos_base_patch16_rpn_224", "blocks of type ResPostRelPosBlock"),
        ("swin_tiny_patch4_window7_224", "swin_tiny_patch4_window7_224 is a SwinTransformer"),
        ("vit_rpe_tiny_patch16_224", "a model of this package already"),
        ("", "no model named ''"),
        (None, "expected a timm model or the name of one, got None"),
    ],
)
def test_names_that_cannot_be_converted(model: Any, message: str) -> None:
    for pretrained in (True, False):  # refused before anything is downloaded
        with pytest.raises(ValueError, match=message):
            vit_rpe.from_timm(model, pretrained=pretrained)


def test_models_that_need_no_conversion_say_so() -> None:
    for convert in (vit_rpe.from_timm, lambda model: vit_rpe.add_rpe(model, "bias")):
        with pytest.raises(ValueError, match=r"vit_rpe_custom is a model of this package already: .* rpe="):
            convert(tiny())
    with pytest.raises(ValueError, match="got 'vit_tiny_patch16_224'"):
        vit_rpe.add_rpe("vit_tiny_patch16_224", "bias")  # type: ignore[arg-type]


@pytest.mark.parametrize("rpe", ["none", None, []])
def test_adding_nothing_is_refused(rpe: Any) -> None:
    with pytest.raises(ValueError, match="adds nothing"):
        vit_rpe.add_rpe(plain(), rpe)


def test_a_refusal_at_a_later_block_leaves_the_model_as_it_was() -> None:
    theirs, x = plain(), images((16, 24))
    theirs.blocks[1].attn.head_dim = 9  # as after pruning heads
    before, hooks = [type(block.attn) for block in theirs.blocks], len(theirs.patch_embed._forward_hooks)
    with pytest.raises(ValueError, match="head_dim must be divisible by 4, got 9"):
        vit_rpe.add_rpe(theirs, "rope")
    assert [type(block.attn) for block in theirs.blocks] == before
    assert len(theirs.patch_embed._forward_hooks) == hooks
    theirs.blocks[1].attn.head_dim = 8
    torch.testing.assert_close(theirs(x), plain_of(theirs)(x))


def plain_of(model: torch.nn.Module) -> torch.nn.Module:
    fresh = plain()
    fresh.load_state_dict(model.state_dict())
    return fresh


@pytest.mark.parametrize("source_classes", [0, 5])
@pytest.mark.parametrize("num_classes", [0, 5, 7])
def test_another_number_of_classes_keeps_everything_but_the_head(source_classes: int, num_classes: int) -> None:
    theirs, x = plain(num_classes=source_classes), images((16, 24))
    ours = vit_rpe.from_timm(theirs, num_classes=num_classes)
    torch.testing.assert_close(ours.forward_features(x), theirs.forward_features(x), atol=1e-4, rtol=1e-4)
    assert ours(x).shape == (3, num_classes or 24)


@pytest.mark.parametrize(
    ("changes", "lacking"),
    [
        ({"global_pool": "map"}, "attn_pool"),
        ({"init_values": 0.1}, "blocks.0.ls1.gamma"),
        ({"fc_norm": True}, "fc_norm"),
    ],
)
def test_parts_that_the_weights_do_not_have_are_refused(changes: dict[str, Any], lacking: str) -> None:
    with pytest.raises(ValueError, match=f"the weights lack .*'{lacking}"):
        vit_rpe.from_timm(plain(), **changes)


def test_a_model_that_lies_in_a_folder_is_converted(tmp_path) -> None:
    theirs, x = plain(), images((16, 24))
    timm.models.save_for_hf(theirs, tmp_path, safe_serialization=True)
    torch.testing.assert_close(vit_rpe.from_timm(f"local-dir:{tmp_path}").eval()(x), theirs(x), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("size", ["16", 16.0, 0, -16, (16, -24), (3, 16, 24), (16, None), (16.0, 24)])
def test_sizes_that_are_none(size: Any) -> None:
    model = randomize(tiny(img_size=(16, 24)))
    x = images((16, 24))
    expected = model(x)
    for call in (lambda: model.set_input_size(size), lambda: tiny(img_size=size)):
        with pytest.raises(ValueError, match="must be positive pixels, one number or height and width, got"):
            call()
    assert torch.equal(model(x), expected)
    model.set_input_size([np.int64(8), 12])
    assert model(images((8, 12))).shape == (3, 5)


@pytest.mark.parametrize("shape", [(3, 8, 12), (2, 1, 8, 12), (2, 3, 12), (1, 2, 3, 8, 12)])
def test_inputs_that_are_no_images(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"the model takes images \(B, 3, H, W\), got shape \("):
        tiny()(torch.zeros(shape))


@pytest.mark.parametrize("num_classes", [5, 7])
def test_weights_of_something_else_never_leave_a_model_half_loaded(tmp_path, num_classes: int) -> None:
    """With another number of classes timm loads whatever fits and says nothing of the rest."""
    other = {"weights.0": torch.zeros(2), "head.weight": torch.zeros(5, 24)}
    part = {key: value for key, value in tiny().state_dict().items() if not key.startswith("blocks.1.")}
    for number, state in enumerate((other, part)):
        save_file(state, tmp_path / f"{number}.safetensors")
        overlay = {"file": str(tmp_path / f"{number}.safetensors"), "num_classes": 5, "input_size": (3, 8, 12)}
        with pytest.raises(ValueError, match="the weights lack"):
            tiny(pretrained=True, pretrained_cfg_overlay=overlay, num_classes=num_classes)


def test_files_that_are_no_weights(tmp_path) -> None:
    (tmp_path / "damaged.safetensors").write_bytes(b"nothing of the kind")
    for name, message in (("damaged.safetensors", "deserializing header"), ("missing.pth", r"no file .*missing\.pth")):
        with pytest.raises(RuntimeError, match=f"cannot read the weights given for vit_rpe_custom: .*{message}"):
            tiny(pretrained=True, pretrained_cfg_overlay={"file": str(tmp_path / name)})
