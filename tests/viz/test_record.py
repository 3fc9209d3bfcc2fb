"""The recorder: maps equal what the fused attention used, for every encoding, and nothing is left behind."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.viz.build import DEPTH, GRID, HEADS, draw_large, images, vision_model
from vit_rpe.encodings import encoding_class, list_encodings
from vit_rpe.layers import RelativeMultiheadAttention
from vit_rpe.models.sequence.model import SequenceTransformer
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.terms import dense_bias
from vit_rpe.viz import Recording, record

NUM_TOKENS = 1 + 4 + 15


def outputs_rebuilt(seen: Recording) -> None:
    """Every layer's output follows from its map."""
    for layer, name in enumerate(seen.names):
        with torch.no_grad():
            rebuilt = seen.call(layer).output(seen.attention(layer))
        torch.testing.assert_close(rebuilt, seen.outputs[name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rpe", [name for name in list_encodings() if 2 in encoding_class(name).card.axes])
def test_the_map_is_what_the_layer_used(rpe: str) -> None:
    model = vision_model(rpe)
    x = images()
    with torch.no_grad():
        before = model(x)
        with record(model, keep_outputs=True) as seen:
            after = model(x)
    assert torch.equal(before, after)
    assert len(seen) == DEPTH
    outputs_rebuilt(seen)
    for layer in range(DEPTH):
        for maps in (seen.attention, seen.content, seen.position):
            weights = maps(layer)
            assert weights.shape == (2, HEADS, NUM_TOKENS, NUM_TOKENS)
            torch.testing.assert_close(weights.sum(-1), torch.ones(2, HEADS, NUM_TOKENS), rtol=0, atol=1e-5)


def contextual() -> list[Any]:
    return [
        {"name": "irpe", "method": method, "mode": "contextual", "on": ("q", "k", "v")}
        for method in ("product", "cross")
    ] + [{"name": "irpe", "mode": "bias"}, ["bias", "rope"], {"name": "bias", "prefix": "learned"}]


@pytest.mark.parametrize("rpe", contextual(), ids=str)
def test_options_with_value_terms_and_combinations(rpe: Any) -> None:
    model = vision_model(rpe)
    with torch.no_grad(), record(model, keep_outputs=True) as seen:
        model(images())
    outputs_rebuilt(seen)


@pytest.mark.parametrize(
    "options", [{"window": 1}, {"causal": True, "class_token": False}, {"logit_clip": 2.0}, {"qk_norm": True}]
)
def test_masks_and_other_options_of_the_model(options: dict[str, Any]) -> None:
    model = vision_model("bias", **options)
    with torch.no_grad(), record(model, keep_outputs=True) as seen:
        model(images())
    outputs_rebuilt(seen)


def test_a_mask_stays_when_position_is_removed() -> None:
    model = vision_model("bias", causal=True, class_token=False, reg_tokens=0)
    with torch.no_grad(), record(model) as seen:
        model(images())
    for maps in (seen.content, seen.position, seen.attention):
        weights = maps(1)
        assert bool((weights.triu(1) == 0).all())
        assert bool((weights.tril() > 0).any(-1).all())


def test_the_field_of_view_of_lookhere_goes_with_the_position() -> None:
    model = vision_model("lookhere")
    with torch.no_grad(), record(model) as seen:
        model(images())
    assert bool((seen.attention(0)[:, :, 5:, 5:] == 0).any())
    assert bool((seen.content(0) > 0).all())
    assert bool(seen.bias(0).isinf().any())


def test_content_and_position_come_apart() -> None:
    model = vision_model("bias")
    x = images()
    with torch.no_grad(), record(model) as seen:
        model(x)
    table = dense_bias(model.blocks[2].attn.rpe(model.grid, model.grid)).detach()
    torch.testing.assert_close(seen.bias(2), table)
    torch.testing.assert_close(seen.position(2), table.softmax(-1).expand(2, -1, -1, -1))
    call = seen.call(2)
    expected = (call.q @ call.k.mT * call.scale).softmax(-1)
    torch.testing.assert_close(seen.content(2), expected)


def test_a_query_that_sees_nothing_has_zeros() -> None:
    layer = RelativeMultiheadAttention(24, 3, rpe="bias", grid=(7,)).eval()
    draw_large(layer)
    visible = torch.ones(2, 7, 7, dtype=torch.bool)
    visible[1, 4] = False
    key_visible = torch.ones(2, 7, dtype=torch.bool)
    key_visible[0, 5:] = False
    model = nn.ModuleDict({"attn": layer})
    with torch.no_grad(), record(model, keep_outputs=True) as seen:
        model["attn"](torch.randn(2, 7, 24), visible=visible, key_visible=key_visible)
    outputs_rebuilt(seen)
    weights = seen.attention(0)
    assert bool((weights[1, :, 4] == 0).all())
    assert bool((weights[0, :, :, 5:] == 0).all())
    torch.testing.assert_close(weights[0].sum(-1), torch.ones(3, 7))


def test_cross_attention() -> None:
    layer = RelativeMultiheadAttention(24, 3, rpe="shaw", grid=(9,)).eval()
    draw_large(layer)
    model = nn.ModuleDict({"attn": layer})
    q, k = TokenGrid((4,)), TokenGrid((9,), num_prefix=1)
    with torch.no_grad(), record(model, keep_outputs=True) as seen:
        model["attn"](torch.randn(2, 4, 24), q, context=torch.randn(2, 10, 24), context_grid=k)
    outputs_rebuilt(seen)
    assert seen.attention(0).shape == (2, 3, 4, 10)
    assert seen.grids(0) == (q, k)


def test_a_decoding_step_with_a_cache() -> None:
    model = SequenceTransformer(11, 8, head="lm", rpe="t5", embed_dim=24, depth=2, num_heads=3, causal=True).eval()
    draw_large(model)
    ids = torch.randint(0, 11, (2, 6))
    with torch.no_grad():
        with record(model) as whole:
            model(ids, context=8)
        cache = model.new_cache(8)
        model(ids[:, :5], cache=cache)
        with record(model) as step:
            model(ids[:, 5:], cache=cache)
    torch.testing.assert_close(step.attention(1), whole.attention(1)[:, :, 5:], rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="decoding step"):
        step.position(0)


def test_patch_dropout_in_training() -> None:
    model = vision_model("bias", patch_drop_rate=0.4).train()
    with torch.no_grad(), record(model, keep_outputs=True) as seen:
        model(images())
    outputs_rebuilt(seen)
    tokens = seen.attention(0).shape[-1]
    assert tokens < NUM_TOKENS
    assert seen.grids(0)[0] == TokenGrid((tokens,))


def test_hooks_are_gone_also_after_an_exception() -> None:
    model = vision_model()

    def hooks() -> int:
        return sum(len(m._forward_pre_hooks) + len(m._forward_hooks) for m in model.modules())

    with record(model, keep_outputs=True):
        assert hooks() > 0
    assert hooks() == 0
    with pytest.raises(RuntimeError, match="stop"), record(model):
        raise RuntimeError("stop")
    assert hooks() == 0


def test_a_second_call_replaces_the_first() -> None:
    model = vision_model()
    first, second = images(), images()
    with torch.no_grad():
        with record(model) as both:
            model(first)
            model(second)
        with record(model) as alone:
            model(second)
    assert len(both) == DEPTH
    torch.testing.assert_close(both.attention(3), alone.attention(3))


@pytest.mark.parametrize("part", ["whole", "block"])
def test_a_compiled_model_is_recorded_too(part: str) -> None:
    model, x = vision_model(), images()
    with torch.no_grad(), record(model) as expected:
        model(x)
    compiled = torch.compile(model, backend="eager") if part == "whole" else model
    if part == "block":
        model.blocks[1].compile(backend="eager")
    with torch.no_grad():
        compiled(x)  # what is compiled now knows of no hook
        with record(compiled) as seen:
            compiled(x)
    assert len(seen) == DEPTH
    torch.testing.assert_close(seen.attention(1), expected.attention(1))


class AddsInPlace(nn.Module):
    """A block that changes its stream after the layer has read it."""

    def __init__(self) -> None:
        super().__init__()
        self.attn = RelativeMultiheadAttention(24, 3, rpe="bias", grid=(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        x += self.attn(x)
        return x


def test_the_input_is_kept_as_the_layer_saw_it() -> None:
    model = AddsInPlace().eval()
    draw_large(model)
    x = torch.randn(2, 6, 24)
    with torch.no_grad(), record(model, keep_outputs=True) as seen:
        model(x.clone())
    outputs_rebuilt(seen)


def test_selection_of_head_and_query() -> None:
    model = vision_model()
    with torch.no_grad(), record(model) as seen:
        model(images())
    whole = seen.attention(-1)
    torch.testing.assert_close(seen.attention(DEPTH - 1, head=2), whole[:, 2])
    torch.testing.assert_close(seen.attention(-1, query=(1, 3)), whole[:, :, 5 + 1 * GRID[1] + 3])
    torch.testing.assert_close(seen.attention(-1, query="class"), whole[:, :, 0])
    torch.testing.assert_close(seen.attention(-1, query="mean"), whole[:, :, 5:].mean(2))
    torch.testing.assert_close(seen.attention(-1, head=1, query=7), whole[:, 1, 7])


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        ({"layer": DEPTH}, "layer 4 does not exist: the recording has 4 layers"),
        ({"layer": 0, "head": HEADS}, "head 3 does not exist: the layer has 3 heads"),
        ({"layer": 0, "query": (3, 0)}, "query 3,0 is outside the grid of 3 x 5 tokens"),
        ({"layer": 0, "query": (1,)}, "query 1 must name 2 numbers, one per axis of 3 x 5 tokens"),
        ({"layer": 0, "query": NUM_TOKENS}, "query 20 is outside the sequence of 20 tokens"),
        ({"layer": 0, "query": "centre"}, "query must be a token's number, a grid position .*, got 'centre'"),
    ],
)
def test_what_does_not_exist_is_refused(ask: dict[str, Any], message: str) -> None:
    model = vision_model()
    with torch.no_grad(), record(model) as seen:
        model(images(1))
    with pytest.raises(ValueError, match=message):
        seen.attention(**ask)


def test_no_class_token_no_attention() -> None:
    model = vision_model(class_token=False)
    with torch.no_grad(), record(model) as seen:
        model(images(1))
    with pytest.raises(ValueError, match="needs a model with a class token"):
        seen.attention(0, query="class")
    with pytest.raises(ValueError, match="Linear has no attention layer"), record(nn.Linear(2, 3)):
        pass


def test_on_the_device_asked_for() -> None:
    model = vision_model("rope_mixed", class_token=False, reg_tokens=0)
    with torch.no_grad(), record(model, device="meta") as seen:
        model(images())
    assert seen.attention(0).device.type == "meta"
    assert next(model.parameters()).device.type == "cpu"
