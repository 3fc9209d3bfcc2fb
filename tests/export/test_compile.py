"""torch.compile in one graph for every encoding, and few compilations over many resolutions."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.testing import CompileCounter

import vit_rpe
from tests.models.tiny import images, randomize, tiny

SAMPLE = ("bias", "rope")
ENCODINGS = [
    name if name in SAMPLE else pytest.param(name, marks=pytest.mark.exhaustive) for name in vit_rpe.list_encodings()
]


@pytest.mark.parametrize("rpe", ENCODINGS)
def test_one_graph_and_at_most_two_compilations_over_five_resolutions(rpe: str) -> None:
    torch._dynamo.reset()
    counter = CompileCounter()
    model = randomize(tiny(rpe=rpe, class_token=True, dynamic_img_size=True, depth=1))
    compiled = torch.compile(model, backend=counter, fullgraph=True, dynamic=True)
    with torch.no_grad():
        for size in ((8, 12), (10, 6), (12, 16), (16, 10), (6, 14)):
            x = images(size)
            torch.testing.assert_close(compiled(x), model(x), atol=1e-5, rtol=1e-4)
    assert counter.frame_count <= 2


@pytest.mark.exhaustive
@pytest.mark.parametrize("rpe", vit_rpe.list_encodings())
def test_compiled_training_step_has_the_same_gradients(rpe: str) -> None:
    torch._dynamo.reset()
    model = randomize(tiny(rpe=rpe, class_token=True)).train()
    x = images()
    model(x).square().sum().backward()
    expected = {key: own.grad.clone() for key, own in model.named_parameters() if own.grad is not None}
    model.zero_grad()
    torch.compile(model, backend="aot_eager", fullgraph=True)(x).square().sum().backward()
    for key, gradient in expected.items():
        torch.testing.assert_close(model.get_parameter(key).grad, gradient, atol=1e-4, rtol=1e-3)


@pytest.mark.exhaustive
@pytest.mark.parametrize("rpe", ["bias", "rope_mixed", "shaw"])
def test_a_frozen_model_compiles(rpe: str) -> None:
    torch._dynamo.reset()
    model = randomize(tiny(rpe=rpe))
    x = images()
    expected = model(x)
    model.freeze()
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend="aot_eager", fullgraph=True)(x), expected)
