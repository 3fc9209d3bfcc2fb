"""Patches by a stem of convolutions: by name, at any size, and what it refuses."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import timm
import torch
from torch import fx

from tests.models.tiny import images, tiny

CONV: dict[str, Any] = {"embed_layer": "conv", "patch_size": 4, "img_size": (16, 24)}


def test_conv_stem_is_a_stack_of_stride_2_convolutions_over_the_edges_of_patches() -> None:
    model = tiny(**CONV, rpe="bias").eval()
    x = torch.randn(2, 3, 16, 24, generator=torch.Generator().manual_seed(0))
    first, last = model.patch_embed.proj[0], model.patch_embed.proj[1]
    by_hand = last.conv(torch.relu(first.bn(first.conv(x))))
    torch.testing.assert_close(model.patch_embed(x), by_hand.permute(0, 2, 3, 1))
    assert by_hand.shape[-2:] == model.grid.size == (4, 6)
    moved = x.clone()
    moved[..., 3] += 1  # the last column of the first patch: the patch right of it sees it too
    assert not torch.equal(model.patch_embed(moved)[:, :, 1], model.patch_embed(x)[:, :, 1])
    assert torch.equal(model.patch_embed(moved)[:, :, 2], model.patch_embed(x)[:, :, 2])


@pytest.mark.parametrize("padded", [False, True])
def test_another_size_is_the_size_it_was_created_at(padded: bool) -> None:
    size = (18, 27) if padded else (20, 12)
    options = {"dynamic_img_pad": padded}
    model, there = (
        tiny(**CONV, **options, rpe="cpb").eval(),
        tiny(**{**CONV, "img_size": size}, **options, rpe="cpb").eval(),
    )
    model.set_input_size(size)
    there.load_state_dict(model.state_dict())
    x = images(size)
    torch.testing.assert_close(model(x), there(x))
    assert model.grid.size == ((5, 7) if padded else (5, 3))


def test_it_is_rebuilt_traced_and_copied_like_the_others() -> None:
    model = tiny(**CONV, rpe="bias").eval()
    x = images((16, 24))
    torch.testing.assert_close(fx.symbolic_trace(model)(x), model(x))
    torch.testing.assert_close(copy.deepcopy(model)(x), model(x))
    assert model._model_args["embed_layer"] == "conv"  # a name, so that JSON can hold it
    model.reset_classifier(3)
    assert model(x).shape == (3, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"embed_layer": "con"}, "unknown embed_layer 'con' .did you mean 'conv'"),
        ({"embed_layer": "conv", "patch_size": 2}, "patch_size is 4, 8, 16 ..., not"),
        ({"embed_layer": "conv", "patch_size": (4, 8)}, "patch_size is 4, 8, 16 ..., not"),
        ({"embed_layer": "conv", "patch_size": 6}, "patch_size is 4, 8, 16 ..., not"),
    ],
)
def test_stems_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        timm.create_model(
            "vit_rpe_custom",
            **{"img_size": 24, "patch_size": 4, "embed_dim": 24, "num_heads": 3, "depth": 1, **options},
        )


def test_its_patch_stays() -> None:
    with pytest.raises(ValueError, match="keeps its patch"):
        tiny(**CONV).set_input_size(patch_size=8)
