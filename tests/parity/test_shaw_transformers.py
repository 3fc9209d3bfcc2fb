"""shaw (keys only) against ``relative_key`` attention of transformers' Wav2Vec2-BERT; its rows are key minus query."""

from __future__ import annotations

import torch
from transformers import Wav2Vec2BertConfig
from transformers.models.wav2vec2_bert.modeling_wav2vec2_bert import Wav2Vec2BertSelfAttention

from vit_rpe.attention import attend
from vit_rpe.encodings import create_encoding
from vit_rpe.position.geometry import TokenGrid

HEADS, DIM, LENGTH, LARGEST = 3, 4, 7, 2


def test_output_and_gradients() -> None:
    config = Wav2Vec2BertConfig(
        hidden_size=HEADS * DIM,
        num_attention_heads=HEADS,
        position_embeddings_type="relative_key",
        left_max_position_embeddings=LARGEST,
        right_max_position_embeddings=LARGEST,
        attn_implementation="eager",
    )
    peer = Wav2Vec2BertSelfAttention(config).double().eval()
    spec = {"name": "shaw", "max_distance": LARGEST, "value": False}
    encoding = create_encoding(spec, HEADS, DIM, TokenGrid((LENGTH,)), dtype=torch.float64)
    with torch.no_grad():
        peer.distance_embedding.weight.normal_(std=2.0)
        encoding.key_0.copy_(peer.distance_embedding.weight.flip(0)[None])
    x = torch.randn(2, LENGTH, HEADS * DIM, dtype=torch.float64, requires_grad=True)

    def split(projection: torch.nn.Linear) -> torch.Tensor:
        return projection(x).unflatten(-1, (HEADS, DIM)).transpose(1, 2)

    grid = TokenGrid((LENGTH,))
    q, k, v = split(peer.linear_q), split(peer.linear_k), split(peer.linear_v)
    ours = attend(q, k, v, encoding(grid, grid), scale=DIM**-0.5, impl="eager")
    ours = peer.linear_out(ours.transpose(1, 2).flatten(2))
    theirs = peer(x)[0]
    torch.testing.assert_close(ours, theirs)

    pull = torch.randn_like(theirs)
    ours_x, ours_table = torch.autograd.grad(ours, [x, encoding.key_0], pull, retain_graph=True)
    theirs_x, theirs_table = torch.autograd.grad(theirs, [x, peer.distance_embedding.weight], pull)
    torch.testing.assert_close(ours_x, theirs_x)
    torch.testing.assert_close(ours_table[0], theirs_table.flip(0))
