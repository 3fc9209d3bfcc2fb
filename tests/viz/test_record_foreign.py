"""Other people's models, as they are and with a position put into them: maps equal the definition, nothing changes."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import timm
import torch
from timm.layers import Attention
from torch import Tensor, nn

import vit_rpe
from tests.models.tiny import images, randomize
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.viz import Recording, record, record_class

SIZE, HEADS = (16, 24), 3
GRID = TokenGrid((4, 6), num_prefix=3)


def pictures(size: tuple[int, int] = SIZE) -> Tensor:
    return images(size)[:2]


def plain(**options: Any) -> nn.Module:
    args = {"img_size": SIZE, "patch_size": 4, "embed_dim": 24, "depth": 2, "num_heads": HEADS, "num_classes": 5}
    return randomize(timm.create_model("vit_tiny_patch16_224", **{"reg_tokens": 2, **args, **options})).eval()


def with_position(rpe: Any, **options: Any) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some change the attention from the start, and say so
        return randomize(vit_rpe.add_rpe(plain(**options), rpe=rpe)).eval()


def softmax_by_hand(model: nn.Module, layer: int, x: Tensor, bias: Tensor | None, mask: Tensor | None) -> Tensor:
    """The weights of a layer for its input, from the parameters alone, one head and query after the other."""
    attention = model.blocks[layer].attn
    q, k, _ = attention.qkv(x).chunk(3, dim=-1)
    width = q.shape[-1] // HEADS
    out = torch.zeros(x.shape[0], HEADS, x.shape[1], x.shape[1])
    for sample in range(x.shape[0]):
        for head in range(HEADS):
            span = slice(head * width, (head + 1) * width)
            for query in range(x.shape[1]):
                logits = k[sample, :, span] @ q[sample, query, span] * width**-0.5
                if bias is not None:
                    logits = logits + bias[head, query]
                if mask is not None:
                    logits = logits.masked_fill(~mask[query], float("-inf"))
                out[sample, head, query] = logits.softmax(-1)
    return out


def recorded(model: nn.Module, x: Tensor, **options: Any) -> Recording:
    """A recording of a call that gives the same bits with and without it."""
    with torch.no_grad():
        before = model(x, **options)
        with record(model, keep_outputs=True) as seen:
            after = model(x, **options)
    assert torch.equal(before, after)
    for layer, name in enumerate(seen.names):
        with torch.no_grad():
            rebuilt = seen.call(layer).output(seen.attention(layer))
        torch.testing.assert_close(rebuilt, seen.outputs[name], rtol=1e-5, atol=1e-5)
    return seen


@pytest.mark.parametrize("rpe", [None, "bias", "rope", "shaw", "deberta", "fire", ["bias", "rope_mixed"]], ids=str)
def test_maps_and_logits(rpe: Any) -> None:
    model = plain() if rpe is None else with_position(rpe)
    seen = recorded(model, pictures())
    assert seen.names == ["blocks.0.attn", "blocks.1.attn"]
    assert seen.grids(1) == (GRID, GRID)
    for maps in (seen.attention, seen.content, seen.position):
        torch.testing.assert_close(maps(1).sum(-1), torch.ones(2, HEADS, GRID.num_tokens))
    assert seen.attention(1, head=1, query=(3, 5)).shape == (2, GRID.num_tokens)
    torch.testing.assert_close(seen.attention(0, query="class"), seen.attention(0)[:, :, 0])


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("rpe", [None, {"name": "bias", "prefix": "learned"}])
def test_the_map_is_the_softmax_of_the_paper(rpe: Any, masked: bool) -> None:
    model = plain() if rpe is None else with_position(rpe)
    x = pictures()
    mask = torch.rand(GRID.num_tokens, GRID.num_tokens) > 0.4 if masked else None
    if mask is not None:
        mask.fill_diagonal_(True)
    seen = recorded(model, x, **({} if mask is None else {"attn_mask": mask}))
    bias = None
    if rpe is not None:
        encoding = model.blocks[1].attn.rpe
        bias = torch.zeros(HEADS, GRID.num_tokens, GRID.num_tokens)
        for query in range(24):
            for key in range(24):
                rows, columns = query // 6 - key // 6, query % 6 - key % 6
                bias[:, 3 + query, 3 + key] = encoding.table[:, rows + 3, columns + 5]
        bias[:, :3, 3:], bias[:, 3:, :3], bias[:, :3, :3] = encoding.prefix_bias.detach().T[:, :, None, None]
        bias = bias.detach()
        hidden = bias if mask is None else bias.masked_fill(~mask, float("-inf"))
        torch.testing.assert_close(seen.bias(1), hidden)
    _, inputs = seen.calls["blocks.1.attn"]
    with torch.no_grad():
        torch.testing.assert_close(seen.attention(1), softmax_by_hand(model, 1, inputs["x"], bias, mask))
        torch.testing.assert_close(seen.content(1), softmax_by_hand(model, 1, inputs["x"], None, mask))


@pytest.mark.parametrize("rpe", [None, "bias", "fire"])
@pytest.mark.parametrize("kind", ["additive", "heads", "samples", "causal"])
def test_masks_as_timm_takes_them(kind: str, rpe: Any) -> None:
    """An encoding that starts at zero changes nothing, whatever the mask; and the maps follow it."""
    model, tokens = plain(), GRID.num_tokens
    shape = {"additive": (tokens, tokens), "heads": (HEADS, tokens, tokens), "samples": (2, 1, tokens, tokens)}
    options: dict[str, Any] = {"is_causal": True}
    if kind != "causal":
        hidden = torch.rand(shape[kind]).lt(0.3) & ~torch.eye(tokens, dtype=torch.bool)
        mask = torch.randn(shape[kind]).masked_fill(hidden, float("-inf")) if kind == "additive" else ~hidden
        options = {"attn_mask": mask}
    x = pictures()
    with torch.no_grad():
        expected = model(x, **options)
    if rpe is not None:
        vit_rpe.add_rpe(model, rpe=rpe)
        with torch.no_grad():
            torch.testing.assert_close(model(x, **options), expected, rtol=1e-4, atol=1e-5)
        randomize(model)
    seen = recorded(model, x, **options)
    if kind == "causal":
        assert bool((seen.attention(0).triu(1) == 0).all())
    elif kind == "heads":
        assert bool((seen.content(1)[:, ~options["attn_mask"]] == 0).all())


def test_another_size_and_a_copy() -> None:
    model = with_position("bias", dynamic_img_size=True)
    seen = recorded(copy.deepcopy(model), pictures((24, 12)))
    assert seen.grids(0)[0] == TokenGrid((6, 3), num_prefix=3)
    assert recorded(model, pictures()).grids(0)[0] == GRID
    model.set_input_size((20, 8))
    assert recorded(model, pictures((20, 8))).grids(1)[0] == TokenGrid((5, 2), num_prefix=3)


def test_gates_and_norms() -> None:
    model = plain()
    for block in model.blocks:
        block.attn = Attention(24, HEADS, qk_norm=True, scale_norm=True, gated=True, norm_layer=nn.LayerNorm)
    randomize(model).eval()
    x = pictures()
    with torch.no_grad():
        expected = model(x)
        torch.testing.assert_close(vit_rpe.add_rpe(model, rpe="bias")(x), expected, rtol=1e-4, atol=1e-5)
    recorded(randomize(model), x)


def test_gradients_too() -> None:
    found = record_class(with_position("bias"), pictures(), 2).gradient_weighted(0, query="class")
    assert found.shape == (2, HEADS, GRID.num_tokens)
    assert bool((found > 0).any())


def test_dropped_patches_lie_on_no_grid() -> None:
    model = plain(patch_drop_rate=0.5).train()
    with torch.no_grad(), record(model) as seen:
        model(pictures())
    tokens = seen.attention(0).shape[-1]
    assert tokens < GRID.num_tokens
    assert seen.grids(0)[0] == TokenGrid((tokens,))


def test_inside_another_model() -> None:
    """The image is found where the transformer is, not at the top."""
    model = nn.Sequential(plain(), nn.Linear(5, 2)).eval()
    seen = recorded(model, pictures())
    assert seen.names[0] == "0.blocks.0.attn"
    assert seen.grids(0)[0] == GRID


def test_pieces_is_the_old_name() -> None:
    seen = recorded(plain(), pictures())
    with pytest.warns(DeprecationWarning, match=r"Recording\.call"):
        torch.testing.assert_close(seen.pieces(0).q, seen.call(0).q)
