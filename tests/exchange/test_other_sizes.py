"""Changed models at another size of image: as in timm where position is a formula, resampled where it is a table."""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch

from tests.exchange.test_replace import replaced
from vit_rpe.models.exchange.in_place import positioned_layers
from vit_rpe.models.families.samples.of_timm import SAM, build, randomize


@pytest.mark.parametrize("size", [(512, 512), (1024, 768)])
def test_segment_anything_in_the_field(size: tuple[int, int]) -> None:
    """The tables of 1024 pixels, which timm stretches in every forward."""
    theirs = randomize(timm.create_model("samvit_base_patch16", **SAM)).eval()
    ours, x = replaced(theirs), torch.randn(1, 3, *size)
    ours.set_input_size(size)
    assert [layer.rpe.grid.size for layer in positioned_layers(ours).values()] == [
        (14, 14),
        (size[0] // 16, size[1] // 16),
    ]
    with torch.no_grad():
        expected, found = theirs.forward_features(x), ours.forward_features(x)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("case", ["eva02", "rope", "dinov3", "sapiens2", "eva02-base"])
def test_rotary_positions_are_asked_anew(case: str) -> None:
    theirs = build(case)
    side = theirs.patch_embed.patch_size[0]
    size = (3 * side, 7 * side)
    ours, x = replaced(theirs), torch.randn(2, 3, *size)
    ours.set_input_size(size)
    theirs.set_input_size(size)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", ["swin", "swinv2", "swinv2_cr", "maxvit-table", "coatnet"])
@pytest.mark.parametrize("rpe", ["keep", "bias", "rope_mixed", "cpb", "fire", "alibi"])
def test_saved_at_one_size_and_loaded_at_another(case: str, rpe: str) -> None:
    """Resizing, then saving the weights and loading them into a model of the new size are one function."""
    options: dict[str, Any] = {"img_size": (96, 64)}
    if case.startswith("swin"):
        options["window_size"] = (4, 3)
    ours = replaced(build(case), rpe)
    with torch.no_grad():
        for layer in positioned_layers(ours).values():
            for parameter in layer.rpe.parameters():
                parameter.add_(torch.randn_like(parameter) / 4)
    changes = dict(options)
    if case.startswith("maxvit"):
        options["window_size"] = changes["transformer_window_size"] = (3, 2)
    again = replaced(build(case, **changes), rpe)
    state = ours.state_dict()
    ours.set_input_size(**options)
    resized = ours.state_dict()  # masks and the like are of the new size; positions are loaded as they were saved
    for key in resized:
        resized[key] = state[key] if ".rpe." in key else resized[key]
    resized._metadata = state._metadata
    again.load_state_dict(resized)
    x = torch.randn(1, 3, 96, 64)
    with torch.no_grad():
        torch.testing.assert_close(again(x), ours(x), rtol=1e-4, atol=1e-5)
