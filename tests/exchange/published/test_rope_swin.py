"""RoPE-Swin: rotation in windows, learned or by axes; stages, shifts and merging in plain loops."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import vit_rpe
from tests.exchange.published.vit import draw, gelu, linear, normed, patches

DIMS, HEADS, WINDOW, CLASSES = (16, 32), (2, 4), 3, 5
HEIGHT, WIDTH = 48, 72  # 12 x 18 and 6 x 9 tokens
HEAD = 8


def speeds(heads: int, base: float) -> Tensor:
    """Of an axial model: the first half of the pairs along the width, the second along the height."""
    own = torch.tensor([base ** (-4 * t / HEAD) for t in range(HEAD // 4)])
    nothing = math.cos(math.pi / 2) * own
    return torch.stack([torch.cat([own, nothing]), torch.cat([0 * own, own])])[:, None].expand(2, heads, -1).clone()


def file(*, axial: bool, table: bool = False) -> dict[str, Tensor]:
    dim = DIMS[0]
    shapes: dict[str, tuple[int, ...]] = {"patch_embed.proj.weight": (dim, 3, 4, 4), "patch_embed.proj.bias": (dim,)}
    shapes |= {f"patch_embed.norm.{part}": (dim,) for part in ("weight", "bias")}
    for stage, (dim, heads) in enumerate(zip(DIMS, HEADS, strict=True)):
        for block in range(2):
            name = f"layers.{stage}.blocks.{block}"
            shapes |= {f"{name}.{norm}.{part}": (dim,) for norm in ("norm1", "norm2") for part in ("weight", "bias")}
            sizes = {"attn.qkv": (3 * dim, dim), "attn.proj": (dim, dim)}
            sizes |= {"mlp.fc1": (4 * dim, dim), "mlp.fc2": (dim, 4 * dim)}
            for layer, size in sizes.items():
                shapes |= {f"{name}.{layer}.weight": size, f"{name}.{layer}.bias": size[:1]}
            shapes[f"{name}.attn.rope_freqs"] = (2, heads, HEAD // 2)
            if table:
                shapes[f"{name}.attn.relative_position_bias_table"] = ((2 * WINDOW - 1) ** 2, heads)
        if stage == 0:
            merging = f"layers.{stage}.downsample"
            shapes |= {f"{merging}.norm.weight": (4 * dim,), f"{merging}.norm.bias": (4 * dim,)}
            shapes[f"{merging}.reduction.weight"] = (2 * dim, 4 * dim)
    shapes |= {"norm.weight": (dim,), "norm.bias": (dim,), "head.weight": (CLASSES, dim), "head.bias": (CLASSES,)}
    weights = draw(shapes)
    place = torch.arange(WINDOW**2)
    for name in [name for name in weights if name.endswith("rope_freqs")]:
        prefix = name.removesuffix("freqs")
        weights |= {f"{prefix}t_x": (place % WINDOW).float(), f"{prefix}t_y": (place // WINDOW).float()}
        if axial:
            weights[name] = speeds(weights[name].shape[1], 50.0)
    weights["layers.0.blocks.1.attn_mask"] = torch.zeros(24, WINDOW**2, WINDOW**2)
    weights["layers.0.blocks.0.attn.relative_position_index"] = torch.zeros(WINDOW**2, WINDOW**2, dtype=torch.int64)
    return weights


def turned(x: Tensor, rates: Tensor, row: int, column: int) -> Tensor:
    """Pairs (2t, 2t + 1); speeds along the width come first."""
    angles = column * rates[0] + row * rates[1]
    even, odd = x[0::2], x[1::2]
    return torch.stack(
        [even * angles.cos() - odd * angles.sin(), odd * angles.cos() + even * angles.sin()], 1
    ).flatten()


def strip(place: int, size: int, shift: int) -> int:
    """Which strip of the rolled image: those before the last window, in it, and what was rolled around."""
    return (place >= size - WINDOW) + (place >= size - shift) if shift else 0


def windowed(x: Tensor, weights: dict[str, Tensor], name: str, heads: int, shift: int) -> Tensor:
    """Attention in windows of the image (H, W, C) rolled by ``shift``."""
    high, wide = x.shape[:2]
    qkv = linear(x, weights, f"{name}.qkv").unflatten(2, (3, heads, HEAD))
    rates, table = weights[f"{name}.rope_freqs"], weights.get(f"{name}.relative_position_bias_table")
    out = torch.empty_like(x)
    for top in range(0, high, WINDOW):
        for left in range(0, wide, WINDOW):
            rolled = [(top + row, left + column) for row in range(WINDOW) for column in range(WINDOW)]
            places = [((row + shift) % high, (column + shift) % wide) for row, column in rolled]
            strips = [(strip(row, high, shift), strip(column, wide, shift)) for row, column in rolled]
            inside = [divmod(index, WINDOW) for index in range(WINDOW**2)]
            for head in range(heads):
                q, k = (
                    [
                        turned(qkv[place][part, head], rates[:, head], *own)
                        for place, own in zip(places, inside, strict=True)
                    ]
                    for part in (0, 1)
                )
                for i, place in enumerate(places):
                    logits = []
                    for j in range(len(places)):
                        dh, dw = inside[i][0] - inside[j][0], inside[i][1] - inside[j][1]
                        logit = q[i] @ k[j] * HEAD**-0.5 + (0.0 if strips[i] == strips[j] else -100.0)
                        if table is not None:
                            row = (dh + WINDOW - 1) * (2 * WINDOW - 1) + dw + WINDOW - 1
                            logit = logit + table[row, head]
                        logits.append(logit)
                    values = torch.stack([qkv[other][2, head] for other in places])
                    out[place][head * HEAD : (head + 1) * HEAD] = torch.stack(logits).softmax(0) @ values
    return linear(out, weights, f"{name}.proj")


def original(weights: dict[str, Tensor], image: Tensor) -> tuple[Tensor, Tensor]:
    """The image of tokens (H, W, C) after the last norm, and logits."""
    weights = {name: value.double() for name, value in weights.items()}
    x = normed(patches(image.double(), weights), weights, "patch_embed.norm", 1e-5).unflatten(0, (HEIGHT // 4, -1))
    for stage, heads in enumerate(HEADS):
        for block in range(2):
            name = f"layers.{stage}.blocks.{block}"
            x = x + windowed(
                normed(x, weights, f"{name}.norm1", 1e-5), weights, f"{name}.attn", heads, WINDOW // 2 * block
            )
            hidden = gelu(linear(normed(x, weights, f"{name}.norm2", 1e-5), weights, f"{name}.mlp.fc1"))
            x = x + linear(hidden, weights, f"{name}.mlp.fc2")
        if stage == 0:
            quarters = [x[0::2, 0::2], x[1::2, 0::2], x[0::2, 1::2], x[1::2, 1::2]]
            merged = normed(torch.cat(quarters, -1), weights, "layers.0.downsample.norm", 1e-5)
            x = linear(merged, weights, "layers.0.downsample.reduction")
    x = normed(x, weights, "norm", 1e-5)
    return x, linear(x.mean((0, 1)), weights, "head")


@pytest.mark.parametrize(
    ("axial", "table"), [(False, True), (True, False), pytest.param(False, False, marks=pytest.mark.exhaustive)]
)
def test_the_same_features_and_logits(axial: bool, table: bool) -> None:
    weights = file(axial=axial, table=table)
    model = vit_rpe.from_published({"model": weights}, img_size=(HEIGHT, WIDTH))
    rpe = model.layers[0].blocks[0].attn.rpe
    assert [part.name for part in rpe.parts()] == ["rope" if axial else "rope_mixed", *["bias"] * table]
    image = torch.randn(3, HEIGHT, WIDTH)
    theirs, logits = original(weights, image)
    with torch.no_grad():
        ours, scores = model.forward_features(image[None])[0].double(), model(image[None])[0].double()
    torch.testing.assert_close(ours, theirs, atol=1e-5 * float(theirs.abs().max()), rtol=0)
    torch.testing.assert_close(scores, logits, atol=1e-5 * float(theirs.abs().max()), rtol=0)


def test_what_may_change_and_what_not() -> None:
    weights = file(axial=True)
    model = vit_rpe.from_published(weights, img_size=(HEIGHT, WIDTH), num_classes=3)
    assert model(torch.randn(1, 3, HEIGHT, WIDTH)).shape == (1, 3)
    assert model.layers[1].blocks[0].attn.rpe.spec["base"] == 50.0
    with pytest.warns(UserWarning, match="'alibi' changes the attention"):
        model = vit_rpe.from_published(weights, "alibi", img_size=(HEIGHT, WIDTH))
    assert model.layers[0].blocks[0].attn.rpe.name == "alibi"
    changes: dict[str, Any] = {"num_heads": (4, 8), "window_size": 4}
    for name, value in changes.items():
        with pytest.raises(ValueError, match=f"the weights have {name}="):
            vit_rpe.from_published(weights, img_size=(HEIGHT, WIDTH), **{name: value})
    bare = {name: value for name, value in weights.items() if "rope_t_" not in name}
    model = vit_rpe.from_published(bare, img_size=(HEIGHT, WIDTH), window_size=WINDOW)
    assert model.layers[0].blocks[0].attn.rpe.grid.size == (WINDOW, WINDOW)
    with pytest.raises(ValueError, match="stage 1 has 3 x 6 tokens"):
        vit_rpe.from_published(weights, img_size=(24, 48))
    lacking = {name: value for name, value in weights.items() if name != "layers.1.blocks.1.norm2.bias"}
    with pytest.raises(ValueError, match=r"lack 1 of the .* 'layers.1.blocks.1.norm2.bias'"):
        vit_rpe.from_published(lacking, img_size=(HEIGHT, WIDTH))
