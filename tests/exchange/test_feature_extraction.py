"""What torchvision's tracer takes apart, it takes apart with an encoding of ours inside too."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import timm
import torch
from torch import nn
from torch.fx.proxy import TraceError
from torchvision.models.feature_extraction import create_feature_extractor, get_graph_node_names

import vit_rpe
from tests.exchange.test_replace import replaced
from vit_rpe.models.families.samples.of_timm import CASES, build, image

UNTRACED = (
    *("sam", "sam-square", "maxvit-tf", "maxvit-square", "qwen3", "gemma4", "efficientvit", "tiny_vit"),
    *("mvitv2", "mvitv2-cls"),
)
"""Models whose own forward branches on the size of its input: no FX tracer goes through timm's either."""


def last_step(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """The model's answer from a graph that was traced through it, without dead code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # graphs of training and evaluation differ by dropout
        name = get_graph_node_names(model)[1][-1]
        graph = create_feature_extractor(model, {name: "last"})
    with torch.no_grad():
        graph(torch.cat([x, x]))  # of another batch before
        return graph(x)["last"]


@pytest.mark.parametrize("case", CASES)
def test_replaced_attention(case: str) -> None:
    theirs, x = build(case), image(case)
    if case in UNTRACED:
        with pytest.raises(TraceError):
            last_step(theirs, x)
        return
    ours: Any = replaced(theirs)
    with torch.no_grad():
        expected = ours(x)
    torch.testing.assert_close(last_step(theirs, x), expected, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(last_step(ours, x), expected)


@pytest.mark.parametrize("rpe", [name for name in vit_rpe.list_encodings() if name != "none"])
def test_added_encoding(rpe: str) -> None:
    model = timm.create_model("vit_tiny_patch16_224", img_size=(32, 48), depth=2, embed_dim=48, num_classes=5).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        vit_rpe.add_rpe(model, rpe)
    x = torch.randn(2, 3, 32, 48)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += torch.randn_like(parameter) / 4
        expected = model(x)
    torch.testing.assert_close(last_step(model, x), expected)
    taps = create_feature_extractor(model, ["blocks.1.attn"])
    taps.train()(x)["blocks.1.attn"].sum().backward()
    assert model.blocks[1].attn.qkv.weight.grad is not None
