"""Plain timm models: the same maps without any weights of ours."""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch
import torch.nn.functional as F
from torch import Tensor

from vit_rpe.position.geometry import TokenGrid
from vit_rpe.viz import record, record_class

SMALL = {"num_classes": 5, "depth": 2, "img_size": (64, 96), "embed_dim": 48, "num_heads": 3}
MODELS: dict[str, tuple[dict[str, Any], TokenGrid]] = {
    "vit_tiny_patch16_224": ({}, TokenGrid((4, 6), num_prefix=1)),
    "vit_relpos_small_patch16_224": ({}, TokenGrid((4, 6))),
    "beit_base_patch16_224": ({}, TokenGrid((4, 6), num_prefix=1)),
    "eva02_tiny_patch14_224": ({"img_size": (56, 84)}, TokenGrid((4, 6), num_prefix=1)),
    "vit_small_patch16_dinov3": ({}, TokenGrid((4, 6), num_prefix=5)),
    "vit_small_patch16_rope_mixed_224": ({}, TokenGrid((4, 6), num_prefix=1)),
}


def build(name: str) -> tuple[torch.nn.Module, Tensor, TokenGrid]:
    more, grid = MODELS[name]
    options = {**SMALL, **more}
    model = timm.create_model(name, **options).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.normal_(std=0.3)
    return model, torch.randn(2, 3, *options["img_size"]), grid


@pytest.mark.parametrize("name", MODELS)
def test_the_map_is_what_the_layer_used(name: str) -> None:
    model, x, grid = build(name)
    with torch.no_grad():
        before = model(x)
        with record(model, keep_outputs=True) as seen:
            after = model(x)
    assert torch.equal(before, after)
    assert len(seen) == 2
    assert seen.grids(0) == (grid, grid)
    for layer, path in enumerate(seen.names):
        with torch.no_grad():
            rebuilt = seen.call(layer).output(seen.attention(layer))
        torch.testing.assert_close(rebuilt, seen.outputs[path], rtol=1e-5, atol=1e-5)
    for maps in (seen.attention, seen.content, seen.position):
        torch.testing.assert_close(maps(1).sum(-1), torch.ones(2, 3, grid.num_tokens))
    assert seen.attention(1, query=(3, 5)).shape == (2, 3, grid.num_tokens)


def test_without_position_nothing_is_added() -> None:
    model, x, _ = build("vit_tiny_patch16_224")
    with torch.no_grad(), record(model) as seen:
        model(x)
    torch.testing.assert_close(seen.content(0), seen.attention(0))
    torch.testing.assert_close(seen.position(0), torch.full((2, 3, 25, 25), 1 / 25))
    assert bool((seen.bias(0) == 0).all())


@pytest.mark.parametrize("name", ["eva02_tiny_patch14_224", "vit_small_patch16_rope_mixed_224"])
def test_rotation_is_taken_off_the_content(name: str) -> None:
    model, x, _ = build(name)
    taken = {}
    handle = model.blocks[1].attn.register_forward_pre_hook(
        lambda module, args, kwargs: taken.update(x=args[0], **kwargs), with_kwargs=True
    )
    with torch.no_grad(), record(model) as seen:
        model(x)
    handle.remove()
    attention = model.blocks[1].attn
    captured: list[Tensor] = []

    def keep(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        captured.extend([q, k])
        return v

    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(F, "scaled_dot_product_attention", keep)
        attention(taken["x"], rope=None)
    q, k = captured
    expected = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1)
    torch.testing.assert_close(seen.content(1), expected)
    assert not torch.allclose(seen.attention(1), expected, atol=1e-3)


def test_the_switch_for_fused_attention_is_restored() -> None:
    model, x, _ = build("vit_tiny_patch16_224")
    with torch.no_grad(), record(model) as fused:
        model(x)
    for block in model.blocks:
        block.attn.fused_attn = False
    with torch.no_grad(), record(model) as plain:
        model(x)
    torch.testing.assert_close(plain.attention(1), fused.attention(1), rtol=1e-4, atol=1e-6)
    assert not any(block.attn.fused_attn for block in model.blocks)


def test_windows_have_maps_of_their_own_and_one_on_the_image() -> None:
    model = timm.create_model("swin_tiny_patch4_window7_224", num_classes=0).eval()
    with torch.no_grad(), record(model) as seen:
        model(torch.randn(1, 3, 224, 224))
    assert len(seen) == 12
    assert seen.attention(0).shape == (64, 3, 49, 49)
    assert seen.grids(0)[0] == TokenGrid((7, 7))
    assert seen.map_grid(0) == seen.map_grid(11) == TokenGrid((56, 56))
    assert seen.attention(11, query=(50, 3)).shape == (1, 24, 56 * 56)


def test_gradients_too() -> None:
    model, x, grid = build("vit_small_patch16_dinov3")
    found = record_class(model, x, 2).gradient_weighted(0, query="class")
    assert found.shape == (2, 3, grid.num_tokens)
    assert bool((found > 0).any())
