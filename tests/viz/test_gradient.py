"""Gradient-weighted maps against autograd through the definition."""

from __future__ import annotations

import pytest
import torch

from tests.viz.build import images, vision_model
from vit_rpe.models.sequence.model import SequenceTransformer
from vit_rpe.viz import record, record_class


def slope_by_differences(
    model: torch.nn.Module, x: torch.Tensor, target: int, layer: int, at: tuple[int, ...]
) -> float:
    """How the class score changes with one weight: the layer's output is replaced by that of nudged weights."""
    with torch.no_grad(), record(model) as seen:
        model(x)
    call, weights, step = seen.call(layer), seen.attention(layer), 1e-3
    scores = []
    for sign in (1, -1):
        nudged = weights.clone()
        nudged[at] += sign * step
        handle = model.blocks[layer].attn.register_forward_hook(lambda m, a, out, w=nudged: call.output(w))
        with torch.no_grad():
            scores.append(float(model(x)[at[0], target]))
        handle.remove()
    return (scores[0] - scores[1]) / (2 * step)


@pytest.mark.parametrize("rpe", ["bias", "shaw"])
def test_weights_times_their_slope_where_positive(rpe: str) -> None:
    model = vision_model(rpe, depth=3).double()
    x = images().double()
    seen = record_class(model, x, 4)
    found, weights = seen.gradient_weighted(1), seen.attention(1)
    assert found.shape == weights.shape
    assert bool((found >= 0).all())
    assert not found.requires_grad
    for at in [(0, 1, 0, 9), (1, 2, 7, 3), (1, 0, 19, 19), (0, 0, 4, 0)]:
        slope = slope_by_differences(model, x, 4, 1, at)
        assert float(found[at]) == pytest.approx(max(0.0, float(weights[at]) * slope), rel=1e-4, abs=1e-9)


def test_the_predicted_class_is_the_default_and_frozen_models_work() -> None:
    model = vision_model(depth=2).requires_grad_(False)
    x = images(3)
    with torch.no_grad():
        predicted = model(x).argmax(1)
    torch.testing.assert_close(
        record_class(model, x).gradient_weighted(0), record_class(model, x, predicted).gradient_weighted(0)
    )
    assert x.grad is None


def test_a_layer_that_does_not_reach_the_score_has_zeros() -> None:
    model = vision_model(depth=2, global_pool="token")
    seen = record_class(model, images(), 0)
    assert bool((seen.gradient_weighted(1)[:, :, 1:] == 0).all())
    assert bool((seen.gradient_weighted(1)[:, :, 0] > 0).any())


def test_what_cannot_be_weighted_is_refused() -> None:
    model = vision_model(depth=2)
    with pytest.raises(ValueError, match="class 7 does not exist: the model has 7 classes"):
        record_class(model, images(), 7)
    with torch.no_grad(), record(model) as seen:
        model(images())
    with pytest.raises(ValueError, match="no gradients"):
        seen.gradient_weighted(0)
    language = SequenceTransformer(11, 8, head="lm", embed_dim=12, depth=1, num_heads=2, causal=True).eval()
    with pytest.raises(ValueError, match="classifier"):
        record_class(language, torch.randint(0, 11, (1, 5)), 0)


@pytest.mark.parametrize("target", [[1, 2, 3], 1.5, True, torch.tensor([1.0, 2.0]), "1", [[1], [2]]])
def test_targets_of_another_number_or_kind_are_refused(target: object) -> None:
    with pytest.raises(ValueError, match="target must be a class number, or one for each of the 2 images, got"):
        record_class(vision_model("bias", depth=1), images(), target)  # type: ignore[arg-type]
