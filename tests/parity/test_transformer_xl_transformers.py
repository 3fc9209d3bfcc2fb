"""transformer_xl against the relative attention of transformers' XLNet, which is bidirectional."""

from __future__ import annotations

import pytest
import torch
from transformers import XLNetConfig
from transformers.models.xlnet.modeling_xlnet import XLNetModel, XLNetRelativeAttention

from vit_rpe.attention import attend
from vit_rpe.encodings import create_encoding
from vit_rpe.position.geometry import TokenGrid

HEADS, DIM = 3, 4
WIDTH = HEADS * DIM


@pytest.mark.parametrize(("num_queries", "num_keys"), [(5, 5), (1, 1), (3, 7)])
def test_output_and_gradients(num_queries: int, num_keys: int) -> None:
    """With fewer queries than keys, XLNet's queries are the last ones: the keys before them are its memory."""
    peer = XLNetRelativeAttention(XLNetConfig(d_model=WIDTH, n_head=HEADS, d_inner=8, n_layer=1)).double().eval()
    encoding = create_encoding("transformer_xl", HEADS, DIM, TokenGrid((num_keys,)), dtype=torch.float64)
    with torch.no_grad():
        for parameter in peer.parameters():
            parameter.normal_()
        encoding.u.copy_(peer.r_w_bias)
        encoding.v.copy_(peer.r_r_bias)
        encoding.proj.weight.copy_(peer.r.flatten(1).T)
    q = torch.randn(2, HEADS, num_queries, DIM, dtype=torch.float64, requires_grad=True)
    k, v = (torch.randn(2, HEADS, num_keys, DIM, dtype=torch.float64, requires_grad=True) for _ in range(2))

    # Offsets from the first key of the last query down to the last key of the first query; one row is cut off inside.
    offsets = torch.arange(num_keys, -num_queries, -1.0)
    inverse = 1 / 10000 ** (torch.arange(0, WIDTH, 2.0) / WIDTH)
    r = XLNetModel.positional_embedding(offsets, inverse, 2).double()
    position = torch.einsum("ibh,hnd->ibnd", r, peer.r)
    theirs = peer.rel_attn_core(*(x.permute(2, 0, 1, 3) for x in (q, k, v)), position).permute(1, 2, 0, 3)

    q_grid = TokenGrid((num_queries,), origin=(num_keys - num_queries,), extent=(num_keys,))
    terms = encoding(q_grid, TokenGrid((num_keys,)))
    ours = attend(q, k, v, terms, scale=DIM**-0.5)
    # Both take the sines in float32 and from differently rounded frequencies.
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)

    pull = torch.randn_like(theirs)
    mine = torch.autograd.grad(ours, [q, k, v, encoding.u, encoding.v, encoding.proj.weight], pull)
    other = torch.autograd.grad(theirs, [q, k, v, peer.r_w_bias, peer.r_r_bias, peer.r], pull)
    for got, want in zip(mine, [*other[:5], other[5].flatten(1).T], strict=True):
        torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-3)
