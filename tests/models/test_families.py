"""What is known of other people's attention: by its class, and refused otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import timm
import torch
from timm.models.swin_transformer import WindowAttention
from torch import Tensor, nn

from vit_rpe.attention import AttentionCall
from vit_rpe.models.families import Family, Place, Sight, _registry, family_of, is_described, place_layers, register
from vit_rpe.models.families._interface import whole_image
from vit_rpe.models.families.plain_vit import PlainViT
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.viz import record


def test_a_plain_vit_sees_the_whole_image() -> None:
    model = timm.create_model("vit_tiny_patch16_224", img_size=(32, 48), patch_size=8, depth=2, reg_tokens=2)
    layers = {f"blocks.{index}.attn": block.attn for index, block in enumerate(model.blocks)}
    places, handles = place_layers(model, layers)
    assert len(handles) == 1
    assert places["blocks.0.attn"].facts["num_prefix"] == 3
    model(torch.randn(1, 3, 32, 48))
    assert places["blocks.1.attn"].image == (4, 6)
    sight = family_of(layers["blocks.1.attn"]).sight(None, places["blocks.1.attn"], {"x": torch.zeros(1, 27, 4)})
    assert sight == Sight((4, 6), TokenGrid((4, 6), 3), TokenGrid((4, 6), 3), ((0, 0),))
    assert sight.is_whole


def test_what_no_family_describes_is_refused_by_name() -> None:
    layer = WindowAttention(12, num_heads=3, window_size=(2, 3))
    if not is_described(layer):
        with pytest.raises(ValueError, match=r"timm\.models\.swin_transformer\.WindowAttention .*known: Attention"):
            family_of(layer)
    with pytest.raises(ValueError, match=r"describe it by a subclass of vit_rpe\.models\.families\.Family"):
        family_of(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="Attention is described by PlainViT already"):
        register(PlainViT())


class Rows(nn.Module):
    """A toy: every row of the image attends to itself alone, without projections."""

    num_heads = 2

    def forward(self, image: Tensor) -> Tensor:
        """(B, h, w, C) to the same."""
        rows = image.flatten(0, 1)
        heads = rows.unflatten(-1, (2, -1)).transpose(1, 2)
        weights = (heads @ heads.mT).softmax(-1)
        return (weights @ heads).transpose(1, 2).reshape(image.shape)


class RowsFamily(Family):
    layers = (Rows,)

    def watched(self, layer: Any, around: Any) -> nn.Module:
        return around[0]

    def image_of(self, watched: Any, args: tuple[Any, ...]) -> tuple[int, ...]:
        return tuple(args[0].shape[1:3])

    def sight(self, layer: Any, place: Place, inputs: Mapping[str, Any]) -> Sight | None:
        assert place.image is not None
        rows, columns = place.image
        grid = TokenGrid((1, columns))
        return Sight(place.image, grid, grid, tuple((row, 0) for row in range(rows)))

    def call(self, layer: Any, inputs: Mapping[str, Any], sight: Sight | None, position: Any) -> AttentionCall:
        image = inputs["image"]
        x = image.flatten(0, 1).unflatten(-1, (layer.num_heads, -1)).transpose(1, 2)
        grids = {"q_grid": sight.q_grid, "k_grid": sight.k_grid}
        return AttentionCall(
            x, x, x, position, None, 1.0, lambda out: out.transpose(1, 2).reshape(image.shape), **grids
        )


@pytest.fixture
def _rows(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(_registry, "_FAMILIES", dict(_registry._FAMILIES))
    register(RowsFamily())


@pytest.mark.usefixtures("_rows")
def test_a_family_of_ones_own_is_recorded_window_by_window() -> None:
    model = nn.Sequential(Rows()).eval()
    x = torch.randn(2, 3, 5, 8)
    with torch.no_grad(), record(model, keep_outputs=True) as seen:
        out = model(x)
    assert seen.attention(0).shape == (6, 2, 5, 5)
    assert seen.grids(0)[0] == TokenGrid((1, 5))
    assert seen.sights["0"].origins == ((0, 0), (1, 0), (2, 0))
    torch.testing.assert_close(seen.call(0).output(seen.attention(0)), out)


def test_the_whole_image_is_one_window() -> None:
    assert not Sight((4, 4), TokenGrid((2, 2)), TokenGrid((2, 2)), ((0, 0), (0, 2), (2, 0), (2, 2)), (1, 1)).is_whole
    assert whole_image((3, 4, 5), 1).origins == ((0, 0, 0),)
