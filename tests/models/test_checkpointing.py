"""Gradient checkpointing under torch's function transforms, which refuse it: there the activations are kept."""

from __future__ import annotations

from torch.func import functional_call, grad
from torch.testing import assert_close

from tests.models.tiny import images, randomize, tiny


def test_gradients_by_torch_func_with_checkpointing_are_those_without():
    model = randomize(tiny(rpe="bias")).train()
    pixels, parameters = images(), dict(model.named_parameters())

    def loss(values):
        return functional_call(model, values, pixels).square().sum()

    expected = grad(loss)(parameters)
    model.set_grad_checkpointing(True)
    for name, found in grad(loss)(parameters).items():
        assert_close(found, expected[name])
    assert expected["blocks.0.attn.rpe.table"].abs().sum() > 0
