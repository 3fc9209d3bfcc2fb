"""No position at all: the ablation every other encoding is compared with. Costs nothing."""

from __future__ import annotations

from vit_rpe.encodings._card import Card
from vit_rpe.encodings._interface import PositionEncoding
from vit_rpe.encodings._registry import register
from vit_rpe.position.geometry import Device, TokenGrid
from vit_rpe.position.terms import PositionTerms


@register("none", Card(paper="", adds=(), extrapolation="the same everywhere"))
class NoPosition(PositionEncoding):
    """Adds nothing; attention does not know where a token is."""

    def forward(self, q: TokenGrid, k: TokenGrid, device: Device = None) -> PositionTerms:
        return PositionTerms()
