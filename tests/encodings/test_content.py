"""Encodings that read what the tokens hold: a layer hands them its input, nobody shares or freezes them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.encodings.build import draw
from vit_rpe import RelativeMultiheadAttention, TokenGrid, VisionTransformer, attention_weights
from vit_rpe.encodings import FrozenPosition, create_encoding, encoding_class, find_encodings, list_encodings

READING = [name for name in list_encodings() if encoding_class(name).card.content]
GRID = TokenGrid((2, 3), num_prefix=1)
SPECS = [*READING, ["pape", "bias"]]
every = pytest.mark.parametrize("rpe", SPECS, ids=str)


def layer(rpe: object, **options: object) -> RelativeMultiheadAttention:
    torch.manual_seed(0)
    built = RelativeMultiheadAttention(24, 3, grid=GRID, rpe=rpe, **options).double().eval()
    for number, part in enumerate(built.rpe.parts()):
        draw(part, seed=number)
    return built


@every
def test_a_layer_hands_over_its_input(rpe: object) -> None:
    attention = layer(rpe)
    x = torch.randn(2, 7, 24, dtype=torch.float64)
    _, weights = attention(x, need_weights=True)
    q, k, _ = attention.project(x, None)
    alone = attention_weights(q, k, attention.rpe(GRID, GRID), scale=attention.scale)
    reading = attention_weights(q, k, attention.rpe(GRID, GRID, x=x, x_k=x), scale=attention.scale)
    torch.testing.assert_close(weights, reading)
    assert (weights - alone).abs().max() > 1e-3
    torch.testing.assert_close(
        attention.rpe(GRID, GRID, x=torch.zeros_like(x)).features[0].left[0],
        attention.rpe(GRID, GRID).features[0].left[0],
    )
    call = attention.attention_call(x)
    torch.testing.assert_close(call.weights(), weights)
    torch.testing.assert_close(call.finish(call.attend()), attention(x))


@every
@pytest.mark.parametrize("impl", ["eager", "sdpa", "fold", "windows", "explicit_weights"])
def test_every_kernel_says_the_same(rpe: object, impl: str) -> None:
    x = torch.randn(2, 7, 24, dtype=torch.float64, requires_grad=True)
    expected, actual = layer(rpe, attn_impl="eager")(x), layer(rpe, attn_impl=impl)
    found = actual(x)
    assert isinstance(expected, torch.Tensor)
    torch.testing.assert_close(found, expected)
    pull = torch.randn_like(expected)
    torch.testing.assert_close(*(torch.autograd.grad(out, x, pull)[0] for out in (found, expected)))


@every
def test_dropped_patches_keep_their_content(rpe: object) -> None:
    attention = layer(rpe)
    x = torch.randn(2, 7, 24, dtype=torch.float64)
    keep = torch.tensor([[0, 2, 5, 6], [0, 1, 3, 4]])
    kept = x.gather(1, keep[..., None].expand(2, 4, 24))
    visible = torch.zeros(2, 7, 7, dtype=torch.bool)
    for sample, tokens in enumerate(keep):
        visible[sample, :, tokens] = True
    whole = attention(x, visible=visible).gather(1, keep[..., None].expand(2, 4, 24))
    torch.testing.assert_close(attention(kept, keep=keep), whole)


@every
def test_in_every_layer_and_never_frozen(rpe: object) -> None:
    options = {"img_size": 12, "patch_size": 4, "embed_dim": 24, "depth": 2, "num_heads": 3, "num_classes": 2}
    model = VisionTransformer(**options, rpe=rpe).eval()
    assert {path.split(".rpe")[0] for path, _ in find_encodings(model)} == {"blocks.0.attn", "blocks.1.attn"}
    images = torch.randn(2, 3, 12, 12)
    before = model(images)
    model.freeze()
    torch.testing.assert_close(model(images), before)
    assert not any(isinstance(module, FrozenPosition) for module in model.modules())
    if isinstance(rpe, str):
        with pytest.raises(ValueError, match="no parameters that layers could share"):
            VisionTransformer(**options, rpe=rpe, rpe_shared=True)
        with pytest.raises(ValueError, match="cannot be constants"):
            FrozenPosition(create_encoding(rpe, 3, 8, GRID), GRID, "cpu", lambda terms: terms)


def test_parabolas_follow_the_query() -> None:
    """One direction along the columns and no shift: the logit is -s softplus(A x) dw^2; prefix tokens stand at 0."""
    encoding = create_encoding({"name": "pape", "parabolas": 1}, 1, 4, TokenGrid((1, 3), 1), dtype=torch.float64)
    with torch.no_grad():
        encoding.directions.copy_(torch.tensor([0.0, 1.0])[:, None, None])
        encoding.b.weight.zero_()
    grid = TokenGrid((1, 3), 1)
    x = torch.randn(1, 4, 4, dtype=torch.float64)
    left, right = encoding(grid, grid, x=x).features[0]
    places = torch.tensor([0.0, 1.0, 2.0, 3.0], dtype=torch.float64)
    width = F.softplus(x @ encoding.a.weight.T)[..., 0]
    expected = -0.5 * width[:, :, None] * (places[:, None] - places).square()
    torch.testing.assert_close((left @ right.mT)[:, 0], expected)


def test_nothing_added_can_still_learn() -> None:
    encoding = create_encoding("pape", 3, 8, GRID)
    encoding.zero_()
    features = encoding(GRID, GRID, x=torch.randn(1, 7, 24)).features[0]
    logits = features.left @ features.right.mT
    assert not logits.any()
    logits.softmax(-1)[..., 0].sum().backward()
    assert encoding.directions.grad.any()
