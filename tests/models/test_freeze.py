"""Frozen models: what else than a forward they go through."""

from __future__ import annotations

import pickle

import pytest
import torch
from timm import create_model

import vit_rpe  # noqa: F401


def test_frozen_models_are_pickled() -> None:
    model = create_model("vit_rpe_nano_patch4_32", rpe="cpb").eval()
    model.freeze()
    x = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        expected = model(x)
        again = pickle.loads(pickle.dumps(model))
        torch.testing.assert_close(again(x), expected)
        again.blocks[1].attn.rpe.fc1.bias.add_(1.0)
        with pytest.raises(ValueError, match="was changed while"):
            again(x)


def test_frozen_in_inference_mode_serves_gradients() -> None:
    model = create_model("vit_rpe_nano_patch4_32", rpe="shaw").eval()
    with torch.inference_mode():
        model.freeze()
    x = torch.randn(1, 3, 32, 32, requires_grad=True)
    model(x).sum().backward()
    assert x.grad is not None
