"""deberta against transformers: the attention of DeBERTa (v1) and DeBERTa-v2, and v2's log buckets at every offset."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from transformers import DebertaConfig, DebertaV2Config
from transformers.models.deberta import modeling_deberta as v1
from transformers.models.deberta_v2 import modeling_deberta_v2 as v2

from vit_rpe.attention import attend
from vit_rpe.encodings import create_encoding
from vit_rpe.encodings.deberta import log_bucket
from vit_rpe.position.geometry import TokenGrid

HEADS, DIM, SPAN, LARGEST = 3, 4, 4, 7
WIDTH = HEADS * DIM
BOTH = ("c2p", "p2c")


@pytest.mark.parametrize(("span", "largest"), [(256, 512), (4, 7), (5, 60), (32, 100)])
def test_log_buckets(span: int, largest: int) -> None:
    offsets = torch.arange(-1100, 1101)
    theirs = v2.make_log_bucket_position(offsets, span, largest).long()
    torch.testing.assert_close(log_bucket(offsets, span, largest), theirs)


def split(x: Tensor) -> Tensor:
    return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)


def compare(theirs: Tensor, ours: Tensor, pairs: list[tuple[Tensor, Tensor]]) -> None:
    """Outputs (B, N, H D) and the gradients of (their tensor, our tensor)."""
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)
    pull = torch.randn_like(theirs)
    expected = torch.autograd.grad(theirs, [a for a, _ in pairs], pull, retain_graph=True)
    actual = torch.autograd.grad(ours, [b for _, b in pairs], pull)
    for got, want in zip(actual, expected, strict=True):
        torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-5)


def randomise(module: torch.nn.Module) -> None:
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)


@pytest.mark.parametrize("directions", [("c2p",), ("p2c",), BOTH])
@pytest.mark.parametrize("length", [3, 4, 7])
def test_v1(directions: tuple[str, ...], length: int) -> None:
    peer = v1.DisentangledSelfAttention(
        DebertaConfig(
            hidden_size=WIDTH,
            num_attention_heads=HEADS,
            relative_attention=True,
            pos_att_type=list(directions),
            max_relative_positions=SPAN,
            attention_probs_dropout_prob=0.0,
            hidden_dropout_prob=0.0,
        )
    ).double()
    randomise(peer)
    table = torch.randn(2 * SPAN, WIDTH, dtype=torch.float64, requires_grad=True)
    spec = {"name": "deberta", "directions": directions, "span": SPAN, "max_distance": None}
    grid = TokenGrid((length,))
    encoding = create_encoding(spec, HEADS, DIM, grid, dtype=torch.float64)
    pairs = [(table, encoding.embed)]
    if "c2p" in directions:
        pairs.append((peer.pos_proj.weight, encoding.key_proj.weight))
    if "p2c" in directions:
        pairs.append((peer.pos_q_proj.weight, encoding.query_proj.weight))
        pairs.append((peer.pos_q_proj.bias, encoding.query_proj.bias))
    with torch.no_grad():
        for theirs, ours in pairs:
            ours.copy_(theirs)
    x = torch.randn(2, length, WIDTH, dtype=torch.float64, requires_grad=True)
    seen = torch.ones(2, 1, length, length, dtype=torch.bool)
    relative = v1.build_relative_position(x, x)
    theirs = peer(x, seen, relative_pos=relative, rel_embeddings=table)[0]

    q, k, v = split(peer.in_proj(x)).chunk(3, dim=-1)
    q = q + split(peer.q_bias[None, None])
    v = v + split(peer.v_bias[None, None])
    ours = attend(q, k, v, encoding(grid, grid), scale=DIM**-0.5).transpose(1, 2).flatten(2)
    compare(theirs, ours, [(x, x), *pairs])


@pytest.mark.parametrize("directions", [("c2p",), BOTH])
def test_v2_with_log_buckets(directions: tuple[str, ...]) -> None:
    length = 11
    peer = v2.DisentangledSelfAttention(
        DebertaV2Config(
            hidden_size=WIDTH,
            num_attention_heads=HEADS,
            relative_attention=True,
            share_att_key=False,
            pos_att_type=list(directions),
            position_buckets=SPAN,
            max_relative_positions=LARGEST,
            attention_probs_dropout_prob=0.0,
            hidden_dropout_prob=0.0,
        )
    ).double()
    randomise(peer)
    table = torch.randn(2 * SPAN, WIDTH, dtype=torch.float64, requires_grad=True)
    spec = {"name": "deberta", "directions": directions, "span": SPAN, "max_distance": LARGEST}
    grid = TokenGrid((length,))
    encoding = create_encoding(spec, HEADS, DIM, grid, dtype=torch.float64)
    # v2's key projection of positions has a bias, which adds the same to all keys of a query: softmax removes it.
    pairs = [(table, encoding.embed), (peer.pos_key_proj.weight, encoding.key_proj.weight)]
    if "p2c" in directions:
        pairs.append((peer.pos_query_proj.weight, encoding.query_proj.weight))
        pairs.append((peer.pos_query_proj.bias, encoding.query_proj.bias))
    with torch.no_grad():
        for theirs, ours in pairs:
            ours.copy_(theirs)
    x = torch.randn(2, length, WIDTH, dtype=torch.float64, requires_grad=True)
    seen = torch.ones(2, 1, length, length, dtype=torch.bool)
    theirs = peer(x, seen, rel_embeddings=table)[0]

    q, k, v = (split(projection(x)) for projection in (peer.query_proj, peer.key_proj, peer.value_proj))
    ours = attend(q, k, v, encoding(grid, grid), scale=DIM**-0.5).transpose(1, 2).flatten(2)
    compare(theirs, ours, [(x, x), *pairs])
