"""Heads that look in one direction each and prefer what is near:  logits_ij -= m_h norm(delta_ij) in the field of view.

LookHere: Vision Transformers with Directed Attention Generalize and Extrapolate, arXiv 2405.13985, section 3. Keys
outside a head's field of view are hidden, its boundary lines and the token itself are seen. No parameters; a bias and a
mask by offset. Two thirds of the heads are directed, the last third sees all. A prefix token sees and is seen by all,
bias 0.

With delta = query minus key, (dh, dw), a key is up where dh >= 0, left where dw >= 0, in the upper triangle where
dh >= |dw|, and so on. Slopes m are those of the released code, times a layer's factor from 1.5 (first) to 0.5 (last).
That code rounds the bias to bfloat16, and its public files were trained so: ``rounded`` does the same.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vit_rpe.checks import check_choice
from vit_rpe.encodings._card import Card
from vit_rpe.encodings._interface import PositionEncoding
from vit_rpe.encodings._registry import register
from vit_rpe.encodings._tables import occurring_offsets
from vit_rpe.position.geometry import Device, TokenGrid
from vit_rpe.position.terms import PositionTerms

UP, DOWN, LEFT, RIGHT = "up", "down", "left", "right"
TRIANGLES = tuple((f"triangle_{side}",) for side in (UP, DOWN, LEFT, RIGHT))

FIELDS: dict[int, tuple[tuple[str, ...], ...]] = {
    180: ((UP,), (DOWN,), (LEFT,), (RIGHT,)) * 2,
    90: ((UP, LEFT), (UP, RIGHT), (DOWN, LEFT), (DOWN, RIGHT), *TRIANGLES),
    45: tuple(
        (*triangle, side)
        for across, along in ((LEFT, UP), (RIGHT, DOWN))
        for triangle, side in zip(TRIANGLES, (across, across, along, along), strict=True)
    ),
}
"""For each angle, the regions whose intersection the directed heads see, in order; more heads start over."""

DIRECTED_SLOPES = {180: (0.5,) * 4 + (0.25,) * 4, 90: (0.5,) * 8, 45: (0.5,) * 8}
UNDIRECTED_SLOPES = (1 / 4, 1 / 16, 1 / 64, 1 / 256)


def region(name: str, dh: Tensor, dw: Tensor) -> Tensor:
    """Keys in one region, bool; ``dh`` and ``dw`` are query minus key."""
    if name.startswith("triangle_"):
        side = name.removeprefix("triangle_")
        toward, across = (dh, dw) if side in (UP, DOWN) else (dw, dh)
        return (toward if side in (UP, LEFT) else -toward) >= across.abs()
    toward = dh if name in (UP, DOWN) else dw
    return (toward if name in (UP, LEFT) else -toward) >= 0


def layer_factor(depth_index: int | None, depth: int | None) -> float:
    """The published factor of layer ``depth_index`` of ``depth``: from 1.5 evenly down to 0.5; alone, 1.

    Raises:
        ValueError: only one of the two is given, or ``depth_index`` is outside 0 ... depth - 1.
    """
    if depth_index is None and depth is None:
        return 1.0
    if depth_index is None or depth is None or not 0 <= depth_index < depth:
        raise ValueError(
            "depth_index and depth must come together, with 0 <= depth_index < depth, got "
            f"depth_index={depth_index!r} and depth={depth!r}"
        )
    return 1.5 - depth_index / (depth - 1) if depth > 1 else 1.5


@register(
    "lookhere",
    Card(
        paper="LookHere, arXiv 2405.13985",
        adds=("offset_bias", "offset_visible"),
        extrapolation="defined for every offset",
        axes=(2,),
        supports_kv_cache=False,
        additive=False,
    ),
)
class LookHere(PositionEncoding):
    """Directed fields of view with a distance penalty.

    Args:
        num_heads, head_dim, grid: as for every encoding.
        fov: angle of a directed head's field of view in degrees, 180, 90 or 45.
        depth_index, depth: which layer of how many; a model fills them in.
        rounded: the bias has the precision of bfloat16 in every dtype.

    Raises:
        ValueError: another ``fov``, or a ``depth_index`` that does not fit ``depth``.
    """

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        grid: TokenGrid,
        *,
        fov: int = 90,
        depth_index: int | None = None,
        depth: int | None = None,
        rounded: bool = False,
    ) -> None:
        super().__init__(num_heads, head_dim, grid)
        check_choice("fov", fov, tuple(FIELDS))
        self.fov = fov
        self.depth_index = depth_index
        self.depth = depth
        self.factor = layer_factor(depth_index, depth)
        self.rounded = rounded

    def remembered(self) -> dict[str, Any]:
        return {"depth_index": self.depth_index, "depth": self.depth}

    def head_fields(self) -> tuple[list[tuple[str, ...]], list[float]]:
        """Regions (none: sees all) and slope of every head."""
        directed = self.num_heads - self.num_heads // 3
        fields = [FIELDS[self.fov][head % 8] for head in range(directed)]
        slopes = [DIRECTED_SLOPES[self.fov][head % 8] for head in range(directed)]
        for head in range(self.num_heads - directed):
            fields.append(())
            slopes.append(UNDIRECTED_SLOPES[head % 4])
        return fields, [self.factor * slope for slope in slopes]

    def forward(self, q: TokenGrid, k: TokenGrid, device: Device = None) -> PositionTerms:
        fields, slopes = self.head_fields()
        dh = occurring_offsets(q, k, 0, device)[:, None]
        dw = occurring_offsets(q, k, 1, device)[None, :]
        regions = {name: region(name, dh, dw) for name in {part for field in fields for part in field}}
        everything = torch.ones((), dtype=torch.bool, device=device)
        seen = []
        for field in fields:
            visible = everything
            for name in field:
                visible = visible & regions[name]
            seen.append(visible.expand(dh.shape[0], dw.shape[1]))
        # products next to the middle between two bfloat16 numbers must fall on the same side as theirs, in float64
        exact = torch.float64 if self.rounded and dh.device.type != "mps" else torch.float32
        distance = (dh.square() + dw.square()).to(exact).sqrt()
        bias = -torch.tensor(slopes, device=device, dtype=exact)[:, None, None] * distance
        if self.rounded:
            bias = bias.bfloat16().float()
        return PositionTerms(offset_bias=(bias,), offset_visible=torch.stack(seen), grids=(q, k))
