"""What a vision transformer refuses, each in one sentence; and what it keeps."""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch

from tests.models.tiny import images, randomize, tiny


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rpe": "rope", "rpe_shared": True}, "no parameters that layers could share"),
        ({"rpe": "none", "rpe_shared": True}, "no parameters that layers could share"),
        ({"rpe": "lookhere", "rpe_shared": True}, "no parameters that layers could share"),
        ({"rpe_shared": "false"}, "rpe_shared must be True or False"),
        ({"rpe": {"name": "bias", "prefix": "learned"}}, "prefix='learned' is for pairs with class or register tokens"),
        ({"weight_init": "foo"}, "unknown weight_init 'foo'"),
        ({"weight_init": "jaxx"}, "did you mean 'jax'"),
        ({"rpe": "shaw", "attn_impl": "sdpa"}, "attn_impl='sdpa' cannot compute"),
        ({"rpe": "shaw", "rpe_shared": True, "attn_impl": "sdpa"}, "attn_impl='sdpa' cannot compute"),
        ({"patch_drop_rate": 0.5, "attn_impl": "windows"}, "patch_drop_rate > 0, attn_impl='windows' cannot"),
        (
            {"patch_drop_rate": 0.5, "attn_impl": "fold", "rpe": "decomposed"},
            "patch_drop_rate > 0, attn_impl='fold' cannot",
        ),
        ({"logit_clip": 3.0, "attn_impl": "sdpa"}, "logit_clip needs the logits"),
        ({"logit_clip": float("inf")}, "logit_clip must be a finite number"),
        ({"num_heads": 0}, "num_heads must be an integer of at least 1"),
        ({"depth": 2.0}, "depth must be an integer of at least 1"),
        ({"depth": -1}, "depth must be an integer of at least 1"),
        ({"drop_path_rate": 1.0}, "drop_path_rate must be a number p with 0 <= p < 1"),
        ({"patch_drop_rate": -0.5}, "patch_drop_rate must be a number p"),
        ({"attn_drop_rate": "0.1"}, "attn_drop_rate must be a finite number"),
        ({"window": -1}, "window=-1"),
        ({"window": (1, 2, 3)}, "one per axis of the grid"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tiny(**options)


def test_one_encoding_with_parameters_is_enough_to_share() -> None:
    assert [name for name, _ in tiny(rpe=["rope", "bias"], rpe_shared=True).rpe.named_parameters()]


@pytest.mark.parametrize("shape", [(25, 24), (24, 25), (2, 24, 24), (4, 1, 24, 24), (3, 3, 24, 23), (24,)])
def test_attention_masks_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    expected = r"attn_mask must be \(24, 24\), \(3, 24, 24\) or \(3, heads, 24, 24\), got"
    model = tiny().eval()
    for mask in (torch.ones(shape, dtype=torch.bool), torch.zeros(shape)):
        with pytest.raises(ValueError, match=expected):
            model(images(), attn_mask=mask)
        with pytest.raises(ValueError, match=expected):
            model.forward_intermediates(images(), attn_mask=mask)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8])
def test_attention_masks_of_integers_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match="attn_mask must be bool"):
        tiny().eval()(images(), attn_mask=torch.ones(24, 24, dtype=dtype))


@pytest.mark.parametrize("shape", [(24, 24), (3, 24, 24), (1, 24, 24), (3, 3, 24, 24), (1, 1, 1, 24)])
def test_attention_masks_that_broadcast_are_taken(shape: tuple[int, ...]) -> None:
    mask = torch.rand(shape) > 0.3
    model = randomize(tiny())
    x = images()
    full = mask.broadcast_to(3, 3, 24, 24) if len(shape) != 3 else mask[:, None].broadcast_to(3, 3, 24, 24)
    torch.testing.assert_close(model(x, attn_mask=mask), model(x, attn_mask=full))


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("rpe", ["bias", ["shaw", "bias_axial"]])
def test_what_is_frozen_stays_frozen_at_another_input_size(rpe: Any, shared: bool) -> None:
    model = tiny(rpe=rpe, rpe_shared=shared, pos_embed="learned")
    for number, parameter in enumerate(model.parameters()):
        parameter.requires_grad_(number % 2 == 0)
    before = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    model.set_input_size((10, 6))
    assert {name: parameter.requires_grad for name, parameter in model.named_parameters()} == before
    assert len(set(before.values())) == 2


@pytest.mark.parametrize("checkpointing", [False, True])
def test_gradient_checkpointing_computes_a_block_again(checkpointing: bool) -> None:
    model = tiny().train()
    model.set_grad_checkpointing(checkpointing)
    calls = []
    for index, block in enumerate(model.blocks):
        block.attn.register_forward_hook(lambda *_, index=index: calls.append(index))
    loss = model(images()).square().sum()
    assert calls == [0, 1]
    loss.backward()
    assert sorted(calls) == ([0, 0, 1, 1] if checkpointing else [0, 1])


@pytest.mark.parametrize("name", ["vit_rpe_nano_patch2_8", "vit_rpe_beit_base_patch16_224", "rpe_sequence_nano"])
def test_an_argument_that_does_not_exist_is_named_with_the_closest(name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name} .*'drop_pth_rate' \(did you mean 'drop_path_rate'\?\)"):
        timm.create_model(name, drop_pth_rate=0.1, **({"vocab_size": 3} if name.startswith("rpe") else {}))


def test_the_size_by_another_word() -> None:
    with pytest.raises(ValueError, match=r"'img_sz' \(did you mean 'img_size'\?\)"):
        timm.create_model("vit_rpe_nano_patch2_8", img_sz=64)


@pytest.mark.parametrize("rpe", ["bias", "rope", "shaw"])
def test_a_padding_mask_with_dropped_patches(rpe: str) -> None:
    """One row for all queries, and of one sample for all: as if the mask were whole."""
    model = randomize(tiny(rpe=rpe, class_token=True, patch_drop_rate=0.4)).train()
    seen, x = torch.rand(3, 1, 1, 25) > 0.3, images()
    for mask in (seen, seen[:1]):
        results = []
        for given in (mask, mask.expand(3, 1, 25, 25).contiguous()):
            torch.manual_seed(4)
            results.append(model(x, attn_mask=given))
        torch.testing.assert_close(results[0], results[1])
