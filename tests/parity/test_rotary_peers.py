"""rope, rope_mixed and rope_normalized against timm's rotary embeddings: the logits and their gradients."""

from __future__ import annotations

import pytest
import torch
from timm.layers import apply_rot_embed_cat
from timm.layers.pos_embed_sincos import RotaryEmbeddingCat, RotaryEmbeddingDinoV3, RotaryEmbeddingMixed
from torch import Tensor

from vit_rpe.attention import rotate
from vit_rpe.encodings import PositionEncoding, create_encoding
from vit_rpe.position.geometry import TokenGrid

HEADS, DIM = 3, 12
SIZES = [(2, 5), (4, 3), (1, 4)]
# timm's axial and mixed forms turn neighbouring channels (2t, 2t + 1); ours the pair (t, t + D/2).
NEIGHBOURS = torch.arange(DIM).reshape(DIM // 2, 2).T.flatten()


def ours(encoding: PositionEncoding, grid: TokenGrid, q: Tensor, k: Tensor, order: Tensor) -> Tensor:
    """The logits with channels brought into our order."""
    terms = encoding(grid, grid)
    return rotate(q[..., order], terms.rotate_q) @ rotate(k[..., order], terms.rotate_k).mT


def check(actual: Tensor, expected: Tensor, wanted: list[Tensor], peers: list[Tensor]) -> None:
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)
    pull = torch.randn_like(actual)
    for a, b in zip(
        torch.autograd.grad(actual, wanted, pull, retain_graph=True),
        torch.autograd.grad(expected, peers, pull),
        strict=True,
    ):
        torch.testing.assert_close(a.flatten(), b.flatten(), atol=1e-3, rtol=1e-3)


def queries_and_keys(size: tuple[int, int]) -> list[Tensor]:
    return [torch.randn(2, HEADS, size[0] * size[1], DIM, requires_grad=True) for _ in range(2)]


@pytest.mark.parametrize("base", [100.0, 30.0])
@pytest.mark.parametrize("size", SIZES)
def test_rope_is_timms_axial(size: tuple[int, int], base: float) -> None:
    peer = RotaryEmbeddingCat(DIM, temperature=base, in_pixels=False, grid_indexing="ij")
    embed = peer.get_embed(list(size))
    q, k = queries_and_keys(size)
    expected = apply_rot_embed_cat(q, embed) @ apply_rot_embed_cat(k, embed).mT
    grid = TokenGrid(size)
    encoding = create_encoding({"name": "rope", "base": base}, HEADS, DIM, grid)
    check(ours(encoding, grid, q, k, NEIGHBOURS), expected, [q, k], [q, k])


@pytest.mark.parametrize("size", SIZES)
def test_rope_mixed_is_timms(size: tuple[int, int]) -> None:
    """In timm the first row of frequencies belongs to x; with ``ij`` indexing that is the height."""
    peer = RotaryEmbeddingMixed(HEADS * DIM, depth=2, num_heads=HEADS, grid_indexing="ij")
    torch.nn.init.normal_(peer.freqs)
    q, k = queries_and_keys(size)
    grid = TokenGrid(size)
    encoding = create_encoding("rope_mixed", HEADS, DIM, grid)
    with torch.no_grad():
        encoding.frequencies.copy_(peer.freqs[:, 1])
    embed = peer.get_embed(list(size))[1]
    expected = apply_rot_embed_cat(q, embed) @ apply_rot_embed_cat(k, embed).mT
    actual = ours(encoding, grid, q, k, NEIGHBOURS)
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)
    pull = torch.randn_like(actual)
    got = torch.autograd.grad(actual, [q, k, encoding.frequencies], pull)
    want = torch.autograd.grad(expected, [q, k, peer.freqs], pull)
    for a, b in zip(got, (*want[:2], want[2][:, 1]), strict=True):
        torch.testing.assert_close(a, b, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("normalize", ["separate", "min", "max"])
@pytest.mark.parametrize("size", SIZES)
def test_rope_normalized_is_timms_dinov3(size: tuple[int, int], normalize: str) -> None:
    peer = RotaryEmbeddingDinoV3(DIM, temperature=40.0, normalize_coords=normalize, rotate_half=True).eval()
    embed = peer.get_embed(list(size))
    q, k = queries_and_keys(size)
    expected = apply_rot_embed_cat(q, embed, half=True) @ apply_rot_embed_cat(k, embed, half=True).mT
    grid = TokenGrid(size)
    spec = {"name": "rope_normalized", "base": 40.0, "normalize": normalize}
    encoding = create_encoding(spec, HEADS, DIM, grid).eval()
    check(ours(encoding, grid, q, k, torch.arange(DIM)), expected, [q, k], [q, k])


@pytest.mark.parametrize("options", [{"shift": 0.4}, {"jitter": 1.7}, {"rescale": 1.3}])
def test_training_changes_follow_timms_draws(options: dict[str, float]) -> None:
    """One kind at a time, the same random numbers give the same rotation."""
    size = (2, 5)
    peer = RotaryEmbeddingDinoV3(DIM, **{f"{name}_coords": value for name, value in options.items()}).train()
    encoding = create_encoding({"name": "rope_normalized", **options}, HEADS, DIM, TokenGrid(size)).train()
    torch.manual_seed(7)
    sin, cos = peer.get_embed(list(size)).chunk(2, -1)
    torch.manual_seed(7)
    terms = encoding(TokenGrid(size), TokenGrid(size))
    torch.testing.assert_close(terms.rotate_q[0], cos[:, : DIM // 2], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(terms.rotate_q[1], sin[:, : DIM // 2], atol=1e-5, rtol=1e-5)
