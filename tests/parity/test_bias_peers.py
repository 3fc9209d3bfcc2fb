"""bias, cpb and t5 against timm and transformers, as whole tensors with gradients, on grids that are not square."""

from __future__ import annotations

import pytest
import torch
from timm.layers import RelPosBias, RelPosMlp
from torch import Tensor
from transformers import BeitConfig, Swinv2Config, T5Config
from transformers.models.beit.modeling_beit import BeitRelativePositionBias
from transformers.models.swinv2.modeling_swinv2 import Swinv2SelfAttention
from transformers.models.t5.modeling_t5 import T5Attention

from vit_rpe.encodings import create_encoding
from vit_rpe.encodings.t5 import t5_bucket
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.terms import dense_bias

HEADS, DIM = 3, 4
SIZES = [(2, 5), (4, 3), (1, 4)]


def same_gradient(ours: Tensor, theirs: Tensor, ours_from: list[Tensor], theirs_from: list[Tensor]) -> None:
    """Equal values, and for one random pull equal gradients in the two layouts given (each already made alike)."""
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    pull = torch.randn_like(theirs)
    for a, b in zip(
        torch.autograd.grad(ours, ours_from, pull), torch.autograd.grad(theirs, theirs_from, pull), strict=True
    ):
        torch.testing.assert_close(a.flatten(), b.flatten(), atol=1e-4, rtol=1e-4)


def beit_parts(rows: Tensor, size: tuple[int, int], prefix: int) -> tuple[Tensor, Tensor | None]:
    """A table of rows (R + 3, H) as ours: (H, 2h-1, 2w-1) and the prefix values (H, 3)."""
    lengths = tuple(2 * s - 1 for s in size)
    count = lengths[0] * lengths[1]
    grid = rows[:count].T.unflatten(1, lengths).contiguous()
    return grid, rows[count:].T.contiguous() if prefix else None


@pytest.mark.parametrize("prefix", [0, 1])
@pytest.mark.parametrize("size", SIZES)
def test_bias_is_timms_relative_position_bias(size: tuple[int, int], prefix: int) -> None:
    peer = RelPosBias(size, HEADS, prefix_tokens=prefix)
    rows = torch.randn_like(peer.relative_position_bias_table).requires_grad_()
    grid = TokenGrid(size, prefix)
    spec = {"name": "bias", "prefix": "learned" if prefix else "zero"}
    encoding = create_encoding(spec, HEADS, DIM, grid)
    table, prefix_bias = beit_parts(rows, size, prefix)
    swapped = {"table": table} if prefix_bias is None else {"table": table, "prefix_bias": prefix_bias}
    ours = dense_bias(torch.func.functional_call(encoding, swapped, (grid, grid)))
    peer.relative_position_bias_table = torch.nn.Parameter(rows.detach().clone())
    assert ours is not None
    same_gradient(ours, peer.get_bias()[0], [rows], [peer.relative_position_bias_table])


@pytest.mark.parametrize("size", SIZES)
def test_bias_is_beits(size: tuple[int, int]) -> None:
    config = BeitConfig(
        image_size=(size[0] * 2, size[1] * 2), patch_size=2, num_attention_heads=HEADS, hidden_size=HEADS * DIM
    )
    peer = BeitRelativePositionBias(config)
    rows = torch.randn_like(peer.relative_position_bias_table).requires_grad_()
    theirs = rows[peer.generate_relative_position_index(size)].permute(2, 0, 1)
    grid = TokenGrid(size, 1)
    encoding = create_encoding({"name": "bias", "prefix": "learned"}, HEADS, DIM, grid)
    table, prefix_bias = beit_parts(rows, size, 1)
    assert prefix_bias is not None
    swapped = {"table": table, "prefix_bias": prefix_bias}
    ours = dense_bias(torch.func.functional_call(encoding, swapped, (grid, grid)))
    assert ours is not None
    same_gradient(ours, theirs, [rows], [rows])


@pytest.mark.parametrize("prefix", [0, 1])
@pytest.mark.parametrize(("mode", "peer_mode"), [("swinv2", "swin"), ("log", "cr")])
@pytest.mark.parametrize("size", SIZES)
def test_cpb_is_timms_mlp(size: tuple[int, int], mode: str, peer_mode: str, prefix: int) -> None:
    if mode == "swinv2" and 1 in size:
        return  # theirs is 0 / 0 there
    peer = RelPosMlp(size, HEADS, hidden_dim=9, prefix_tokens=prefix, mode=peer_mode).eval()
    grid = TokenGrid(size, prefix)
    encoding = create_encoding({"name": "cpb", "mode": mode, "hidden": 9}, HEADS, DIM, grid)
    for parameter in encoding.parameters():
        torch.nn.init.normal_(parameter)
    peer.mlp.load_state_dict(encoding.state_dict())
    ours = dense_bias(encoding(grid, grid))
    assert ours is not None
    order = [name for name, _ in encoding.named_parameters()]
    theirs = dict(peer.mlp.named_parameters())
    same_gradient(ours, peer.get_bias()[0], list(encoding.parameters()), [theirs[name] for name in order])


def test_cpb_keeps_the_pretrained_size_as_timm_does() -> None:
    peer = RelPosMlp((3, 7), HEADS, hidden_dim=9, mode="swin", pretrained_window_size=(2, 5)).eval()
    encoding = create_encoding({"name": "cpb", "hidden": 9}, HEADS, DIM, TokenGrid((2, 5)))
    for parameter in encoding.parameters():
        torch.nn.init.normal_(parameter)
    peer.mlp.load_state_dict(encoding.state_dict())
    grid = TokenGrid((3, 7))
    torch.testing.assert_close(dense_bias(encoding(grid, grid)), peer.get_bias()[0], atol=1e-5, rtol=1e-5)


def test_cpb_is_swinv2s() -> None:
    """Through the attention of transformers, whose scores are cosines: with all of them 0 the bias is what is left."""
    size = (3, 4)
    config = Swinv2Config(embed_dim=HEADS * DIM, num_heads=[HEADS], qkv_bias=True)
    peer = Swinv2SelfAttention(config, HEADS * DIM, HEADS, size).eval()
    grid = TokenGrid(size)
    encoding = create_encoding("cpb", HEADS, DIM, grid)
    for parameter in encoding.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    network = peer.continuous_position_bias_mlp
    with torch.no_grad():
        for ours, theirs in zip(encoding.parameters(), network.parameters(), strict=True):
            theirs.copy_(ours)
        peer.query.weight.zero_()
        peer.query.bias.zero_()
    weights = peer(torch.randn(1, grid.num_tokens, HEADS * DIM), output_attentions=True)[1][0]
    bias = dense_bias(encoding(grid, grid))
    assert bias is not None
    same_gradient(bias.softmax(-1), weights, list(encoding.parameters()), list(network.parameters()))


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "largest"), [(32, 128), (8, 20), (6, 9), (64, 500)])
@pytest.mark.parametrize(("num_q", "num_k"), [(7, 7), (5, 40), (150, 3)])
def test_t5_is_transformers(num_q: int, num_k: int, buckets: int, largest: int, bidirectional: bool) -> None:
    config = T5Config(
        d_model=HEADS * DIM,
        d_kv=DIM,
        num_heads=HEADS,
        relative_attention_num_buckets=buckets,
        relative_attention_max_distance=largest,
        is_decoder=not bidirectional,
    )
    peer = T5Attention(config, has_relative_attention_bias=True, layer_idx=0).double()  # thousands of terms a sum
    torch.nn.init.normal_(peer.relative_attention_bias.weight)
    spec = {"name": "t5", "num_buckets": buckets, "max_distance": largest, "bidirectional": bidirectional}
    encoding = create_encoding(spec, HEADS, DIM, TokenGrid((7,)))
    table = peer.relative_attention_bias.weight.detach().T.clone().requires_grad_()
    q, k = TokenGrid((num_q,)), TokenGrid((num_k,))
    ours = dense_bias(torch.func.functional_call(encoding, {"table_0": table}, (q, k)))
    assert ours is not None
    theirs = peer.compute_bias(num_q, num_k)[0]
    torch.testing.assert_close(ours, theirs)
    pull = torch.randn_like(theirs)
    (a,) = torch.autograd.grad(ours, table, pull)
    (b,) = torch.autograd.grad(theirs, peer.relative_attention_bias.weight, pull)
    torch.testing.assert_close(a.T, b)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "largest"), [(32, 128), (4, 2), (8, 64), (10, 100), (64, 1000)])
def test_t5_buckets_are_transformers(buckets: int, largest: int, bidirectional: bool) -> None:
    offsets = torch.arange(-2 * largest, 2 * largest + 1)
    theirs = T5Attention._relative_position_bucket(offsets, bidirectional, buckets, largest)
    if not bidirectional and largest <= buckets / 2:
        return
    assert [t5_bucket(int(x), buckets, largest, bidirectional) for x in offsets] == theirs.tolist()
