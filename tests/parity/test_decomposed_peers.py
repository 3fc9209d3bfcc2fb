"""decomposed against Segment Anything (timm and transformers) and MViTv2 (timm, with pooled keys or queries)."""

from __future__ import annotations

import pytest
import torch
from timm.models.mvitv2 import cal_rel_pos_type
from timm.models.vision_transformer_sam import get_decomposed_rel_pos_bias
from torch import Tensor
from transformers import SamVisionConfig
from transformers.models.sam.modeling_sam import SamVisionAttention

from vit_rpe.attention import attend, position_logits
from vit_rpe.encodings import PositionEncoding, create_encoding
from vit_rpe.position.geometry import TokenGrid

HEADS, DIM = 3, 4


def build(grid: TokenGrid) -> PositionEncoding:
    encoding = create_encoding("decomposed", HEADS, DIM, grid, dtype=torch.float64)
    for parameter in encoding.parameters():
        torch.nn.init.normal_(parameter, std=2.0)
    return encoding


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def compare(theirs: Tensor, ours: Tensor, wanted: list[Tensor], same: list[Tensor]) -> None:
    torch.testing.assert_close(ours, theirs)
    pull = torch.randn_like(theirs)
    expected = torch.autograd.grad(theirs, wanted, pull, retain_graph=True)
    for got, want in zip(torch.autograd.grad(ours, same, pull), expected, strict=True):
        torch.testing.assert_close(got, want)


def test_timm_sam() -> None:
    grid = TokenGrid((3, 5))
    encoding = build(grid)
    q, k = random(2, HEADS, 15, DIM), random(2, HEADS, 15, DIM)
    tables = [encoding.table_0, encoding.table_1]
    theirs = get_decomposed_rel_pos_bias(q.flatten(0, 1), *tables, grid.size, grid.size).unflatten(0, (2, HEADS))
    ours = position_logits(q, k, encoding(grid, grid), DIM**-0.5)
    assert ours is not None
    compare(theirs, ours, [q, *tables], [q, *tables])


def test_transformers_sam() -> None:
    grid = TokenGrid((3, 5))
    encoding = build(grid)
    config = SamVisionConfig(hidden_size=HEADS * DIM, num_attention_heads=HEADS, image_size=64, patch_size=16)
    peer = SamVisionAttention(config, window_size=0).double().eval()
    peer.rel_pos_h = torch.nn.Parameter(encoding.table_0.detach().clone())
    peer.rel_pos_w = torch.nn.Parameter(encoding.table_1.detach().clone())
    x = random(2, *grid.size, HEADS * DIM)
    theirs = peer(x)[0]
    q, k, v = peer.qkv(x).reshape(2, 15, 3, HEADS, DIM).permute(2, 0, 3, 1, 4)
    ours = attend(q, k, v, encoding(grid, grid), scale=DIM**-0.5).transpose(1, 2).reshape(x.shape)
    tables = [encoding.table_0, encoding.table_1]
    # The peer's softmax runs in float32.
    torch.testing.assert_close(peer.proj(ours), theirs, atol=1e-6, rtol=1e-5)
    pull = torch.randn_like(theirs)
    expected = torch.autograd.grad(theirs, [x, peer.rel_pos_h, peer.rel_pos_w], pull)
    for got, want in zip(torch.autograd.grad(peer.proj(ours), [x, *tables], pull), expected, strict=True):
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("class_token", [False, True])
@pytest.mark.parametrize(
    ("q_stride", "k_stride"), [((1, 1), (1, 1)), ((1, 1), (2, 3)), ((2, 3), (1, 1)), ((2, 1), (4, 3)), ((2, 2), (2, 2))]
)
def test_timm_mvitv2(q_stride: tuple[int, int], k_stride: tuple[int, int], class_token: bool) -> None:
    prefix = int(class_token)
    lattice = (4, 6)
    finer = tuple(n // min(a, b) for n, a, b in zip(lattice, q_stride, k_stride, strict=True))
    q_size = tuple(n // s for n, s in zip(lattice, q_stride, strict=True))
    k_size = tuple(n // s for n, s in zip(lattice, k_stride, strict=True))
    q_grid = TokenGrid(q_size, prefix, stride=q_stride, extent=lattice)
    k_grid = TokenGrid(k_size, prefix, stride=k_stride, extent=lattice)
    encoding = build(TokenGrid(finer, prefix))
    q, k = random(2, HEADS, q_grid.num_tokens, DIM), random(2, HEADS, k_grid.num_tokens, DIM)
    tables = [encoding.table_0, encoding.table_1]
    empty = torch.zeros(2, HEADS, q_grid.num_tokens, k_grid.num_tokens, dtype=torch.float64)
    theirs = cal_rel_pos_type(empty, q, class_token, list(q_size), list(k_size), *tables)
    ours = position_logits(q, k, encoding(q_grid, k_grid), DIM**-0.5)
    assert ours is not None
    compare(theirs, ours, [q, *tables], [q, *tables])
