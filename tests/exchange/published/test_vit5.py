"""ViT-5: rotation of patches and of registers, each on a lattice of its own."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import vit_rpe
from tests.exchange.published.vit import draw, encoded, linear, normed, patches, shapes_of_vit

DIM, HEADS, SIDE, REGISTERS = 24, 3, 3, 4
WIDTH = DIM // HEADS


def file(registers: int = REGISTERS) -> dict[str, Tensor]:
    shapes = shapes_of_vit(DIM, 2, (4, 4), 5, bias=False, qkv_bias=False)
    shapes["pos_embed"] = (1, SIDE * SIDE, DIM)
    if registers:
        shapes["reg_token"] = (1, registers, DIM)
    for layer in range(2):
        shapes |= {f"blocks.{layer}.gamma_{branch}": (DIM,) for branch in (1, 2)}
        shapes |= {f"blocks.{layer}.attn.{side}_norm.weight": (WIDTH,) for side in "qk"}
    weights = draw(shapes)
    for layer in range(2):
        weights[f"blocks.{layer}.attn.rope.freqs"] = speeds(10000)
        if registers:
            weights[f"blocks.{layer}.attn.rope_reg.freqs"] = speeds(100)
    return weights


def speeds(base: float) -> Tensor:
    return torch.tensor([base ** (-2 * t / (WIDTH // 2)) for t in range(WIDTH // 4)])


def place(token: int) -> tuple[str, int, int] | None:
    """Whose lattice a token of the original order stands on, row and column; None for the class token."""
    if token == 0:
        return None
    if token <= SIDE * SIDE:
        return "rope", *divmod(token - 1, SIDE)
    return "rope_reg", *divmod(token - 1 - SIDE * SIDE, 2)


def turned(x: Tensor, token: int, weights: dict[str, Tensor]) -> Tensor:
    where = place(token)
    if where is None:
        return x
    name, row, column = where
    rates = weights[f"blocks.0.attn.{name}.freqs"].tolist()
    angles = [row * rate for rate in rates] + [column * rate for rate in rates]
    parts = []
    for t, angle in enumerate(angles):
        even, odd = x[2 * t], x[2 * t + 1]
        parts += [even * math.cos(angle) - odd * math.sin(angle), odd * math.cos(angle) + even * math.sin(angle)]
    return torch.stack(parts)


def original(weights: dict[str, Tensor], image: Tensor) -> Tensor:
    """Tokens after the last norm: class, patches, registers."""
    weights = {name: value.double() for name, value in weights.items()}
    registers = weights.get("reg_token", torch.zeros(1, 0, DIM))[0]
    x = torch.cat([weights["cls_token"][0], patches(image.double(), weights) + weights["pos_embed"][0], registers])

    def before(layer: int, vectors: Tensor, side: str) -> Tensor:
        return normed(vectors, weights, f"blocks.{layer}.attn.{side}_norm", 1e-6)

    def meet(layer: int, head: int, i: int, j: int, q: Tensor, k: Tensor) -> Tensor:
        return turned(q, i, weights) @ turned(k, j, weights) * WIDTH**-0.5

    return encoded(x, weights, HEADS, meet, eps=1e-6, before=before)


@pytest.mark.parametrize("registers", [REGISTERS, 0])
def test_the_same_features(registers: int) -> None:
    weights = file(registers)
    model = vit_rpe.from_published({"model": weights})
    image = torch.randn(3, 4 * SIDE, 4 * SIDE)
    with torch.no_grad():
        ours, scores = model.forward_features(image[None])[0].double(), model(image[None])[0].double()
    theirs, last = original(weights, image), SIDE * SIDE + 1
    theirs = torch.cat([theirs[:1], theirs[last:], theirs[1:last]])
    torch.testing.assert_close(ours, theirs, atol=1e-5 * float(theirs.abs().max()), rtol=0)
    logits = linear(theirs[0], {name: value.double() for name, value in weights.items()}, "head")
    torch.testing.assert_close(scores, logits, atol=1e-5 * float(logits.abs().max()), rtol=0)


def test_what_is_read_off_the_file() -> None:
    model = vit_rpe.from_published(file(), num_classes=7, img_size=(12, 20))
    rope = model.rpe
    assert (rope.name, rope.spec["base"], rope.spec["registers"]) == ("rope", 10000.0, 100.0)
    assert (model.num_prefix_tokens, model.grid.size) == (5, (3, 5))
    assert model(torch.randn(1, 3, 12, 20)).shape == (1, 7)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"pos_embed": torch.zeros(1, 8, DIM)}, "knows square images only, and the file has 8 patches"),
        ({"pos_embed": None}, "no pos_embed"),
        ({"blocks.0.attn.rope.freqs": torch.tensor([1.0, 0.5, 0.1])}, "no powers of one base"),
        ({"blocks.1.mlp.fc2.bias": None}, "lack 1 of the"),
        ({"blocks.1.mlp.gate": torch.zeros(3)}, "'blocks.1.mlp.gate' first"),
        ({"blocks.0.mlp.fc1.weight": None, "blocks.0.mlp.w1.weight": torch.zeros(3)}, "gated MLP"),
    ],
)
def test_refusals(changed: dict[str, Tensor | None], message: str) -> None:
    weights = {name: value for name, value in {**file(), **changed}.items() if value is not None}
    with pytest.raises(ValueError, match=message):
        vit_rpe.from_published(weights)


def test_weights_decide() -> None:
    with pytest.raises(ValueError, match="num_heads=3, which cannot become 4"):
        vit_rpe.from_published(file(), num_heads=4)
    with pytest.raises(ValueError, match="none of ViT-5, LookHere, iRPE-DeiT, RoPE-Swin"):
        vit_rpe.from_published({"fc.weight": torch.zeros(2, 2)})
