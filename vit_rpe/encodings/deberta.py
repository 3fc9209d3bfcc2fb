"""Disentangled attention: content meets projected position embeddings in two directions,

    logits_ij = ( q_i.k_j + q_i.K_r[b(i-j)] + k_j.Q_r[b(i-j)] ) / sqrt((1 + t) D),    t the number of directions used.

DeBERTa: Decoding-enhanced BERT with Disentangled Attention, arXiv 2006.03654, eq. 4; the log buckets b are those of
DeBERTaV3, arXiv 2111.09543: exact up to span/2, then logarithmic up to ``max_distance``. K_r and Q_r are one learned
embedding (2 span rows, clamped at its ends), projected; only rows of offsets that occur are projected.

Differs from the paper: it writes b(j-i) in the last term; the released code and every public checkpoint use b(i-j),
and so does this. The embedding belongs to the layer (there it is shared by all layers, with layer norm and dropout;
for one of all layers, share the encoding), and the projections are its own (DeBERTaV3 ties them to those of q and k).
On a grid with several axes each axis has its own 2 span rows of ``embed``, and the terms are summed over axes.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from vit_rpe.checks import check_choice
from vit_rpe.encodings._card import Card
from vit_rpe.encodings._interface import PositionEncoding, all_but_matrices, at_least_float32
from vit_rpe.encodings._registry import register
from vit_rpe.encodings._tables import distinct_offsets, project
from vit_rpe.position.geometry import Device, TokenGrid
from vit_rpe.position.geometry_cache import once_per_forward
from vit_rpe.position.terms import PositionTerms, RelativeVectors

DIRECTIONS = ("c2p", "p2c")


def log_bucket(offsets: Tensor, span: int, max_distance: int) -> Tensor:
    """The bucket of every offset: itself up to span/2, then ceil of a logarithm that reaches span - 1 at the maximum.

    Args:
        offsets: int64, any shape.

    Returns:
        int64, of the same shape, with the sign of the offset.
    """
    middle = span // 2
    distance = offsets.abs().clamp(min=middle).float()
    # Both logarithms are taken by the same routine, so that their ratio at the maximum is 1, not 1.0000001.
    largest = torch.tensor((max_distance - 1) / middle, device=offsets.device).log()
    far = torch.ceil((distance / middle).log() / largest * (middle - 1)).long() + middle
    return torch.where(offsets.abs() <= middle, offsets, offsets.sign() * far)


def row_of(offsets: Tensor, span: int, max_distance: int | None) -> Tensor:
    """Row of an axis's part of ``embed`` for offsets, int64 of any shape."""
    bucket = offsets if max_distance is None else log_bucket(offsets, span, max_distance)
    return (bucket + span).clamp(0, 2 * span - 1)


@once_per_forward
def rows_between(
    q: TokenGrid, k: TokenGrid, span: int, max_distance: int | None, device: Device = None
) -> tuple[Tensor, tuple[int, ...], tuple[Tensor, ...]]:
    """Rows of ``embed`` for the offsets that occur between two grids.

    Returns:
        The rows of all axes, int64; how many of them each axis has; and per axis where among its own each pair of
        coordinates finds its row, int64 (Sq, Sk).
    """
    farthest = span if max_distance is None else max_distance
    found = [distinct_offsets(q, k, axis, device, limit=farthest) for axis in range(q.ndim)]
    rows = [row_of(offsets, span, max_distance) + axis * 2 * span for axis, (offsets, _) in enumerate(found)]
    return torch.cat(rows), tuple(own.shape[0] for own in rows), tuple(index for _, index in found)


@register(
    "deberta",
    Card(
        paper="DeBERTa, arXiv 2006.03654; DeBERTaV3, arXiv 2111.09543",
        adds=("on_query", "on_key", "scale"),
        extrapolation="the last row beyond max_distance (or span, without log buckets)",
        additive=False,
    ),
)
class Deberta(PositionEncoding):
    """Parameters: ``embed`` (n * 2 span, H D), ``key_proj`` (no bias; for c2p), ``query_proj`` (with bias; for p2c).

    Args:
        num_heads, head_dim, grid: as for every encoding.
        directions: ``"c2p"`` (queries meet key positions), ``"p2c"`` (keys meet query positions) or both.
        span: half the number of rows of an axis.
        max_distance: offset of the last log bucket; None = no log buckets, rows of offsets up to ``span``.

    Raises:
        ValueError: no, repeated or unknown directions; a span or ``max_distance`` too small for log buckets.
    """

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        grid: TokenGrid,
        *,
        directions: tuple[str, ...] = DIRECTIONS,
        span: int = 256,
        max_distance: int | None = 512,
    ) -> None:
        super().__init__(num_heads, head_dim, grid)
        if isinstance(directions, str):
            raise ValueError(f"directions must be a tuple such as ('c2p', 'p2c'), got {directions!r}")
        for direction in directions:
            check_choice("direction", direction, DIRECTIONS)
        if len(directions) == 0 or len(set(directions)) != len(directions):
            raise ValueError(f"directions must name 'c2p', 'p2c' or both once, got {directions!r}")
        if span < 1 or (span < 2 and max_distance is not None):
            raise ValueError(f"span must be at least 1, and 2 for log buckets (max_distance not None), got {span}")
        if max_distance is not None and max_distance < span // 2 + 2:
            raise ValueError(
                f"log buckets start at span // 2 = {span // 2}: max_distance must be None or at least "
                f"{span // 2 + 2}, got {max_distance}"
            )
        width = num_heads * head_dim
        self.span = span
        self.max_distance = max_distance
        self.softmax_factor = 1 / math.sqrt(1 + len(directions))
        self.embed = nn.Parameter(torch.empty(grid.ndim * 2 * span, width))
        self.key_proj = nn.Linear(width, width, bias=False) if "c2p" in directions else None
        self.query_proj = nn.Linear(width, width) if "p2c" in directions else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            else:
                nn.init.trunc_normal_(parameter, std=0.02)

    def no_weight_decay(self) -> set[str]:
        return all_but_matrices(self)

    def forward(self, q: TokenGrid, k: TokenGrid, device: Device = None) -> PositionTerms:
        embed = at_least_float32(self.embed)
        rows, counts, index = rows_between(q, k, self.span, self.max_distance, embed.device)
        used = embed.index_select(0, rows)  # the axes go through a projection together
        on_query, on_key = [], []
        if self.key_proj is not None:
            tables = self._per_head(project(self.key_proj, used)).split(counts, dim=1)
            on_query = [RelativeVectors(*part, axis) for axis, part in enumerate(zip(tables, index, strict=True))]
        if self.query_proj is not None:
            tables = self._per_head(project(self.query_proj, used)).split(counts, dim=1)
            on_key = [RelativeVectors(*part, axis) for axis, part in enumerate(zip(tables, index, strict=True))]
        return PositionTerms(on_query=tuple(on_query), on_key=tuple(on_key), scale=self.softmax_factor, grids=(q, k))

    def _per_head(self, vectors: Tensor) -> Tensor:
        """(R, H D) -> (H, R, D)."""
        return vectors.unflatten(1, (self.num_heads, self.head_dim)).transpose(0, 1)
