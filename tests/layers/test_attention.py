"""RelativeMultiheadAttention and Block: grids, masks, cross-attention, weights."""

import pytest
import timm
import torch
import torch.nn.functional as F
from einops import rearrange
from torch.testing import assert_close

from vit_rpe import RelativeMultiheadAttention, TokenGrid
from vit_rpe.layers import Block
from vit_rpe.position.terms import dense_bias


def _layer(**options):
    torch.manual_seed(0)
    layer = RelativeMultiheadAttention(24, 2, **options)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    return layer


def test_matches_the_plain_formula_with_bias():
    layer = _layer(rpe="bias", grid=(2, 3))
    x = torch.randn(3, 6, 24)
    q, k, v = rearrange(layer.qkv(x), "b n (three h d) -> three b h n d", three=3, h=2)
    bias = dense_bias(layer.rpe(TokenGrid((2, 3)), TokenGrid((2, 3))))
    weights = (q @ k.mT / 12**0.5 + bias).softmax(-1)
    expected = layer.proj(rearrange(weights @ v, "b h n d -> b n (h d)"))
    out, seen = layer(x, need_weights=True)
    assert_close(out, expected)
    assert_close(seen, weights)


@pytest.mark.parametrize("batch", [2, 3])
def test_a_batch_mask_is_per_sample_also_when_batch_equals_heads(batch):
    layer = _layer()
    x = torch.randn(batch, 5, 24)
    visible = torch.rand(batch, 5, 5) > 0.4
    out, weights = layer(x, visible=visible, need_weights=True)
    assert (weights[~visible[:, None].expand_as(weights)] == 0).all()
    for sample in range(batch):
        alone = layer(x[sample : sample + 1], visible=visible[sample : sample + 1])
        assert_close(out[sample : sample + 1], alone)
    assert_close(out, layer(x, visible=visible[:, None].expand(-1, 2, -1, -1)))


def test_hidden_keys_have_no_influence_and_rows_sum_to_one():
    layer = _layer(rpe="rope", grid=(7,))
    x = torch.randn(3, 7, 24)
    key_visible = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0, 0], [1, 0, 1, 0, 1, 0, 1]]).bool()
    out, weights = layer(x, key_visible=key_visible, need_weights=True)
    disturbed = x + 1000 * (~key_visible)[:, :, None]
    again = layer(disturbed, key_visible=key_visible)
    assert_close(again[key_visible], out[key_visible])
    assert_close(weights.sum(-1), torch.ones(3, 2, 7))


def test_a_query_that_sees_nothing_gives_the_projection_of_zero():
    layer = _layer()
    visible = torch.ones(2, 4, 4, dtype=torch.bool)
    visible[0, 2] = False
    x = torch.randn(2, 4, 24, requires_grad=True)
    out, weights = layer(x, visible=visible, need_weights=True)
    assert_close(out[0, 2], layer.proj.bias)
    assert weights[0, :, 2].abs().sum() == 0
    out.sum().backward()
    assert x.grad.isfinite().all()


def test_cross_attention_between_two_grids():
    layer = _layer(rpe="alibi", grid=(3, 4))
    q_grid, k_grid = TokenGrid((3, 4)), TokenGrid((2, 5), num_prefix=1)
    x, context = torch.randn(2, 12, 24), torch.randn(2, 11, 24)
    out, weights = layer(x, q_grid, context=context, context_grid=k_grid, need_weights=True)
    assert out.shape == (2, 12, 24)
    assert weights.shape == (2, 2, 12, 11)
    q = rearrange(F.linear(x, layer.qkv.weight[:24], layer.qkv.bias[:24]), "b n (h d) -> b h n d", h=2)
    k, v = rearrange(
        F.linear(context, layer.qkv.weight[24:], layer.qkv.bias[24:]), "b n (two h d) -> two b h n d", two=2, h=2
    )
    expected = (q @ k.mT / 12**0.5 + dense_bias(layer.rpe(q_grid, k_grid))).softmax(-1)
    assert_close(weights, expected)
    assert_close(out, layer.proj(rearrange(expected @ v, "b h n d -> b n (h d)")))


def test_causal_and_window_hide_what_they_say():
    grid = TokenGrid((2, 3), num_prefix=1)
    x = torch.randn(1, 7, 24)
    _, weights = _layer(rpe="bias", grid=grid, causal=True)(x, need_weights=True)
    assert (weights[0, 0].triu(1) == 0).all()
    _, weights = _layer(rpe="bias", grid=grid, window=(0, 1))(x, need_weights=True)
    for i in range(6):
        for j in range(6):
            near = i // 3 == j // 3 and abs(i % 3 - j % 3) <= 1
            assert (weights[0, 0, 1 + i, 1 + j] > 0) == near
    assert (weights[0, 0, 0] > 0).all()
    assert (weights[0, 0, :, 0] > 0).all()


def test_attention_dropout_is_off_in_eval_and_on_again_in_train():
    layer = _layer(rpe="bias", grid=(6,), dropout=0.5)
    x = torch.randn(2, 6, 24)
    for _ in range(2):
        layer.eval()
        assert_close(layer(x), layer(x), rtol=0, atol=0)
        layer.train()
        assert not torch.equal(layer(x), layer(x))


def test_logit_clip_caps_the_logits():
    free, capped = _layer(), _layer(logit_clip=0.5)
    x = torch.randn(1, 5, 24) * 10
    _, weights = capped(x, need_weights=True)
    q, k, _ = rearrange(capped.qkv(x), "b n (three h d) -> three b h n d", three=3, h=2)
    assert_close(weights, (0.5 * torch.tanh(q @ k.mT / 12**0.5 / 0.5)).softmax(-1))
    assert not torch.allclose(free(x), capped(x))


def test_set_grid_resamples_the_table():
    layer = _layer(rpe="bias", grid=(3, 4))
    layer.set_grid(TokenGrid((5, 2)))
    assert layer.rpe.table.shape == (2, 9, 3)
    assert layer(torch.randn(1, 10, 24)).shape == (1, 10, 24)


def test_block_applies_keep_to_every_pair():
    torch.manual_seed(0)
    block = Block(24, 2, attention={"rpe": "bias", "grid": TokenGrid((3, 4), num_prefix=1)}).eval()
    with torch.no_grad():
        block.attn.rpe.table.normal_(std=2.0)
    x = torch.randn(2, 13, 24)
    keep = torch.tensor([[0, 5, 2, 9], [0, 1, 12, 7]])
    chosen = x.gather(1, keep[..., None].expand(-1, -1, 24))
    out = block(chosen, TokenGrid((3, 4), num_prefix=1), keep=keep)
    for sample in range(2):
        hidden = torch.zeros(1, 13, dtype=torch.bool)
        hidden[0, keep[sample]] = True
        full = block(x[sample : sample + 1], TokenGrid((3, 4), num_prefix=1), key_visible=hidden)
        assert_close(out[sample], full[0, keep[sample]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_heads": 5}, "dim must be divisible by num_heads, got dim=24 and num_heads=5"),
        ({"rpe": "bias"}, "needs the native grid"),
        ({"attn_impl": "sdap"}, "did you mean 'sdpa'"),
        ({"logit_clip": 0.0}, "logit_clip must be positive"),
        ({"rpe": {"name": "bias", "max_distanse": 3}, "grid": (2, 3)}, "did you mean 'max_distance'"),
        ({"rpe": ["bias", "bias"], "grid": (2, 3)}, "more than once"),
        ({"rpe": "biass"}, "did you mean 'bias'"),
        ({"rpe": 5}, "rpe must be a name"),
        ({"num_heads": 0}, "num_heads must be an integer of at least 1, got 0"),
        ({"num_heads": -2}, "num_heads"),
        ({"num_heads": 2.0}, "num_heads"),
        ({"dropout": 1.0}, "dropout must be a number p with 0 <= p < 1, got 1.0"),
        ({"dropout": -0.1}, "dropout"),
        ({"proj_drop": "0.1"}, "proj_drop"),
        ({"logit_clip": float("inf")}, "logit_clip must be a finite number"),
        ({"logit_clip": True}, "logit_clip"),
        ({"window": -1}, "window=-1"),
        ({"window": True}, "window must be an integer"),
        ({"window": 1.5}, "window must be an integer"),
        ({"window": (1, 2, 3), "grid": (2, 3)}, "one per axis of the grid"),
        ({"grid": (2, 3.0)}, "a grid is made of integers"),
        ({"grid": "23"}, "a grid is made of integers"),
        ({"rpe": "shaw", "grid": (2, 3), "attn_impl": "sdpa"}, "attn_impl='sdpa' cannot compute"),
        ({"rpe": "bias", "grid": (2, 3), "attn_impl": "fold"}, "attn_impl='fold' cannot compute"),
        ({"logit_clip": 2.0, "attn_impl": "sdpa"}, "logit_clip needs the logits"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        RelativeMultiheadAttention(24, **{"num_heads": 2, **options})


@pytest.mark.parametrize("pair", [["rope", "rope_mixed"], ["rope_normalized", "rope"]])
def test_two_rotations_are_refused_when_the_model_is_built(pair):
    with pytest.raises(ValueError, match="two rotary encodings"):
        RelativeMultiheadAttention(24, 2, rpe=pair, grid=(2, 3))
    with pytest.raises(ValueError, match="two rotary encodings"):
        timm.create_model("vit_rpe_nano_patch2_8", rpe=pair)


def test_bad_calls():
    layer = _layer(rpe="bias", grid=(2, 3))
    with pytest.raises(ValueError, match="x has 7 tokens"):
        layer(torch.randn(1, 7, 24))
    with pytest.raises(ValueError, match="visible must be"):
        layer(torch.randn(3, 6, 24), visible=torch.ones(2, 6, 6, dtype=torch.bool))
    with pytest.raises(ValueError, match="key_visible must be"):
        layer(torch.randn(3, 6, 24), key_visible=torch.ones(3, 5, dtype=torch.bool))
    with pytest.raises(ValueError, match="on a grid of 1 axes"):
        layer(torch.randn(1, 6, 24), TokenGrid((6,)))
    with pytest.raises(ValueError, match="pass grid"):
        _layer(causal=True)(torch.randn(1, 3, 24))


@pytest.mark.parametrize("shape", [(2, 7, 6), (2, 6, 5), (2, 1, 6), (2, 6, 1), (2, 2, 6, 1), (2, 1, 5, 6)])
def test_a_mask_of_other_tokens_is_refused(shape):
    with pytest.raises(ValueError, match=r"visible must be bool of shape \(2 or 1, 6, 6\)"):
        _layer()(torch.randn(2, 6, 24), visible=torch.ones(shape, dtype=torch.bool))


def test_bad_contexts():
    layer = _layer(rpe="alibi", grid=(2, 3))
    x = torch.randn(2, 6, 24)
    with pytest.raises(ValueError, match="the same batch, got 2 and 3"):
        layer(x, context=torch.randn(3, 6, 24))
    with pytest.raises(ValueError, match="on a grid of 1 axes"):
        layer(x, context=torch.randn(2, 5, 24), context_grid=(5,))
    with pytest.raises(ValueError, match="differ in their number of axes"):
        _layer()(x, (2, 3), context=torch.randn(2, 5, 24), context_grid=5)
    with pytest.raises(ValueError, match="leave context out"):
        layer(x, context=x, keep=torch.zeros(2, 6, dtype=torch.int64))


def test_sizes_will_do_for_grids():
    layer = _layer(rpe="alibi", grid=(2, 3))
    x, context = torch.randn(2, 8, 24), torch.randn(2, 5, 24)
    expected = layer(x, TokenGrid((4, 2)), context=context, context_grid=TokenGrid((1, 5)))
    assert_close(layer(x, (4, 2), context=context, context_grid=[1, 5]), expected)


@pytest.mark.parametrize("rpe", [None, "none", [], ["none"], {"name": "none"}])
def test_no_position_needs_no_grid(rpe):
    assert _layer(rpe=rpe)(torch.randn(2, 5, 24)).shape == (2, 5, 24)


def test_key_padding_in_cross_attention_is_that_of_the_context():
    layer = _layer(rpe="bias", grid=(2, 3))
    q_grid, k_grid = TokenGrid((2, 3)), TokenGrid((2, 2), num_prefix=1)
    x, context = torch.randn(3, 6, 24), torch.randn(3, 5, 24)
    key_visible = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 1, 0], [0, 0, 1, 0, 0]]).bool()
    out, weights = layer(x, q_grid, context=context, context_grid=k_grid, key_visible=key_visible, need_weights=True)
    full = layer(x, q_grid, context=context, context_grid=k_grid, need_weights=True)[1]
    expected = full * key_visible[:, None, None, :]
    assert_close(weights, expected / expected.sum(-1, keepdim=True))
    disturbed = torch.where(key_visible[:, :, None], context, torch.full((), 50.0))
    assert_close(layer(x, q_grid, context=disturbed, context_grid=k_grid, key_visible=key_visible), out)
    with pytest.raises(ValueError, match=r"key_visible must be \(batch, keys\) = \(3, 5\)"):
        layer(x, q_grid, context=context, context_grid=k_grid, key_visible=torch.ones(3, 6, dtype=torch.bool))
