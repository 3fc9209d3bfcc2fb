"""Windowed models under names of ours do with any encoding what models of timm do."""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch
from timm.optim import create_optimizer_v2

from vit_rpe.models.exchange.in_place import positioned_layers
from vit_rpe.models.families.samples.of_timm import MAXVIT, SAM, SWIN

NAMED: dict[str, tuple[str, dict[str, Any]]] = {
    "swin": ("swin_tiny_patch4_window7_224", {"window_size": 4, **SWIN}),
    "swinv2": ("swinv2_tiny_window8_256", {"window_size": 4, **SWIN}),
    "swinv2_cr": ("swinv2_cr_tiny_ns_224", {"window_size": 4, **SWIN}),
    "sam": ("samvit_base_patch16", {"window_size": 2, **SAM}),
    "maxvit": ("maxvit_tiny_tf_224", {"transformer_window_size": (2, 2), "block_type": ("M", "M"), **MAXVIT}),
    "coatnet": ("coatnet_nano_rw_224", {"block_type": ("C", "T"), **MAXVIT}),
    "mvitv2": ("mvitv2_tiny", {"cfg_variant": "small"}),
    "gcvit": ("gcvit_xxtiny", {"embed_dim": 16, "window_size": (4, 2, 4, 2)}),
}
"""A name of timm's a family, and what makes it small; images of 64 pixels."""
SPECS = ("keep", "bias", "rope_mixed", "cpb")
EACH = pytest.mark.parametrize(
    ("case", "rpe"),
    [
        pytest.param(case, rpe, marks=() if place % 4 == other else pytest.mark.exhaustive)
        for place, case in enumerate(NAMED)
        for other, rpe in enumerate(SPECS)
    ],
)


def create(case: str, rpe: str, **changes: Any) -> Any:
    name, small = NAMED[case]
    return timm.create_model(f"vit_rpe_{name}", rpe=rpe, img_size=64, num_classes=5, **{**small, **changes})


def images(*size: int) -> torch.Tensor:
    return torch.randn(2, 3, *(size or (64, 64)))


@EACH
@torch.no_grad()
def test_features_and_intermediates_are_those_of_the_forward(case: str, rpe: str) -> None:
    model, x = create(case, rpe).eval(), images()
    expected = model.forward_features(x)
    final, maps = model.forward_intermediates(x)
    torch.testing.assert_close(final, expected)
    assert all(each.ndim == 4 and each.shape[0] == 2 for each in maps)
    torch.manual_seed(0)
    features = create(case, rpe, features_only=True, out_indices=(-2, -1)).eval()
    assert positioned_layers(features)
    found = features(x)
    for each, channels in zip(found, features.feature_info.channels(), strict=True):
        assert channels in (each.shape[1], each.shape[-1])  # Swin's are channels last


@EACH
def test_head_size_checkpointing_and_learning_rates(case: str, rpe: str) -> None:
    model, x = create(case, rpe), images()
    model.reset_classifier(7)
    assert model(x).shape == (2, 7)
    model.eval()
    plain = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
    model.set_grad_checkpointing(True)
    again = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
    torch.testing.assert_close(again, plain, rtol=1e-4, atol=1e-4)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1.0, weight_decay=0.1, layer_decay=0.5)
    settings = {
        id(parameter): (group["weight_decay"], group["lr_scale"])
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    assert len(settings) == len(list(model.parameters()))
    for path, layer in positioned_layers(model).items():
        own = dict(layer.rpe.named_parameters())
        scales = {settings[id(value)][1] for value in own.values()}
        block = {settings[id(value)][1] for name, value in layer.named_parameters() if not name.startswith("rpe.")}
        assert scales <= block, f"{path}: an encoding is decayed with its block"
        for name in layer.rpe.no_weight_decay():
            assert settings[id(own[name])][0] == 0.0, name


@EACH
def test_another_size(case: str, rpe: str) -> None:
    model = create(case, rpe).eval()
    if not hasattr(type(model), "set_input_size") and case != "sam":
        with pytest.raises(ValueError, match="has no set_input_size"):
            model.set_input_size((64, 128))
        return
    size = (64, 128)
    model.set_input_size(size, **({} if case == "sam" else {"window_size": (2, 4)}))
    layer = next(iter(positioned_layers(model).values()))
    expected = {"sam": (2, 2), "coatnet": (8, 16)}.get(case, (2, 4))
    assert layer.rpe.grid.size == expected
    with torch.no_grad():
        assert model(images(*size)).shape == (2, 5)
