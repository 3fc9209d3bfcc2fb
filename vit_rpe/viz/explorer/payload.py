"""What the explorer's page needs to compute any map itself: rounded q and k, and the terms.

Maps of all layers and images would not fit (72 heads of 197 x 197, four images, three kinds of map); q and k are an
order smaller, and content and position come apart at no cost. ``attention.js`` is the other half: it applies the same
terms as :func:`vit_rpe.attention_weights`.

Legend: B images, W windows of one image, H heads, N tokens of a call with prefix (Nq and Nk of queries and keys),
D head width, R relations, p patches of the image.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from vit_rpe.attention import AttentionCall
from vit_rpe.position.geometry import TokenGrid, offsets
from vit_rpe.position.masks import intersect
from vit_rpe.position.terms import PositionTerms, RelativeVectors, dense_bias, dense_visible
from vit_rpe.viz.explorer.packing import Description, Packer
from vit_rpe.viz.plots.overlay import layer_label
from vit_rpe.viz.recording.on_image import placement
from vit_rpe.viz.recording.recording import Recording
from vit_rpe.viz.recording.rotation import rotation_frequencies

OTHER_TURNS = "shows queries and keys that turn in pairs of channels, not by blocks nor polar"
NOT_SHOWN = {
    "features": "does not show features: what an encoding reads off the content of each image",
    "blocks_q": OTHER_TURNS,
    "polar_q": OTHER_TURNS,
}
"""Parts of :class:`PositionTerms` that the page cannot compute, and what is said of them."""


def pack_layout(packer: Packer, seen: Recording, layer: int, image: tuple[int, ...]) -> dict[str, Any]:
    """Pack where the patches of the image are in the calls of one layer."""
    sight = seen.sight(layer)
    place = placement(sight, image, torch.device("cpu"))
    return {
        "heads": seen.heads(layer),
        "label": layer_label(seen, layer),
        "windows": len(sight.origins),
        "queries": sight.q_grid.num_tokens,
        "keys": sight.k_grid.num_tokens,
        "grids": [{"size": list(each.size), "prefix": each.num_prefix} for each in (sight.q_grid, sight.k_grid)],
        "queryOf": None if sight.pools else packer.add(place.query_of.numpy().astype(np.int32)),
        "keyOf": packer.add(place.key_of.numpy().astype(np.int32)),
    }


def pack_terms(packer: Packer, seen: Recording, layer: int) -> dict[str, Any]:
    """Pack what position adds in one layer, which is the same for all images of the page.

    Raises:
        ValueError: its terms differ between images (a mask per image), or heads are mixed.
    """
    call, sight = seen.call(layer), seen.sight(layer)
    for part, words in NOT_SHOWN.items():
        found = getattr(call.terms, part)
        if found is not None and len(found) > 0:
            raise ValueError(f"the explorer {words}")
    if call.mix_logits is not None:
        raise ValueError("the explorer does not show heads that are mixed before the softmax (talking heads)")
    grids = sight.q_grid, sight.k_grid
    windows = len(sight.origins)
    own, visible = call.masks, None
    if own is not None and windows > 1 and own.shape[0] > 1:
        own, visible = None, own
    bias = dense_bias(call.terms)
    hidden = intersect(dense_visible(call.terms, call.q.device), own)
    if hidden is not None:
        zero = torch.zeros((), device=hidden.device)
        bias = (zero if bias is None else bias).where(hidden, float("-inf"))
    picture = None if sight.pools else packer.add_rounded(seen.by_offset(layer).float().cpu().numpy())
    return {
        "scale": call.scale * call.terms.scale,
        "clip": call.logit_clip,
        "rotation": _pack_rotation(packer, call, grids[0]),
        "bias": None if bias is None else _pack_pairs(packer, bias, *grids),
        "masks": None if own is None else _pack_pairs(packer, _as_logits(own), *grids),
        "windowMasks": None if visible is None else _pack_masks(packer, visible, windows),
        "onQuery": [_pack_vectors(packer, call, part) for part in call.terms.on_query],
        "onKey": [_pack_vectors(packer, call, part) for part in call.terms.on_key],
        "picture": picture,
    }


def by_image(tokens: Tensor, windows: int) -> Tensor:
    """Tokens of all windows one after the other, (B W, H, N, D) to (B, H, W N, D)."""
    return tokens.unflatten(0, (-1, windows)).transpose(1, 2).flatten(2, 3)


def by_window(tokens: Tensor, windows: int) -> Tensor:
    """The inverse of :func:`by_image`."""
    return tokens.unflatten(2, (windows, -1)).transpose(1, 2).flatten(0, 1)


class Rounded(NamedTuple):
    """Tokens as their mean plus whole numbers times a step per head and token.

    Attributes:
        mean: (B, H, D) float32.
        whole: (B, H, N, D) float64, whole numbers.
        steps: (B, H, N) float64, whole numbers 1..65535, times ``unit`` (B,).
    """

    mean: Tensor
    whole: Tensor
    steps: Tensor
    unit: Tensor

    def values(self) -> Tensor:
        """The numbers that come back, (B, H, N, D) float32."""
        return (self.mean[:, :, None] + self.whole * (self.steps * self.unit[:, None, None])[..., None]).float()


def round_tokens(tokens: Tensor, mean: Tensor, bits: int) -> Rounded:
    """Round queries or keys to whole numbers of a few bits, as the page stores them.

    Args:
        tokens: (B, H, N, D).
        mean: (B, H, D), what the tokens scatter around.
        bits: 2 to 16 per number.
    """
    mean = mean.float()
    rest = tokens.double() - mean[:, :, None]
    top = 2 ** (bits - 1) - 1
    peak = rest.abs().amax(dim=-1)
    unit = peak.amax(dim=(1, 2)).clamp_min(1e-30) / (65535 * top)
    steps = (peak / (top * unit[:, None, None])).ceil().clamp(1, 65535)
    whole = (rest / (steps * unit[:, None, None])[..., None]).round().clamp(-top, top)
    return Rounded(mean, whole, steps, unit)


def pack_tokens(packer: Packer, rounded: Rounded, image: int, *, bits: int) -> dict[str, Any]:
    """The rounded tokens of one image."""
    mean, whole, steps = (part[image].cpu().numpy() for part in rounded[:3])
    return {
        "mean": packer.add(mean),
        "values": packer.add(whole.astype(np.int8 if bits <= 8 else np.int16)),
        "steps": {**packer.add(steps.astype(np.uint16)), "scale": float(rounded.unit[image])},
    }


def rounded_terms(terms: PositionTerms) -> PositionTerms:
    """The terms as they come back from the page, whose tables have 16 bits."""
    bias = dense_bias(terms)
    return terms._replace(
        bias=None if bias is None else _through_16_bits(bias),
        axis_bias=(),
        offset_bias=(),
        prefix_bias=None,
        on_query=tuple(part._replace(table=_through_16_bits(part.table)) for part in terms.on_query),
        on_key=tuple(part._replace(table=_through_16_bits(part.table)) for part in terms.on_key),
    )


def _through_16_bits(values: Tensor) -> Tensor:
    """What :meth:`Packer.add_rounded` keeps of finite values."""
    step = values.abs().max().double().clamp_min(1e-30) / 32766
    return ((values / step).round() * step).to(values.dtype)


def _pack_rotation(packer: Packer, call: AttentionCall, grid: TokenGrid) -> dict[str, Any] | None:
    """Frequencies where the angle is linear in the position, else the whole cos and sin."""
    rotation, of_keys = call.terms.rotate_q, call.terms.rotate_k
    if rotation is None:
        return None
    if of_keys is None or any(not torch.equal(own, other) for own, other in zip(rotation, of_keys, strict=True)):
        raise ValueError("the explorer needs queries and keys that are rotated alike")
    if rotation[0].ndim == 4:
        raise ValueError("the explorer needs the same terms for all images, got a rotation per image")
    cos, sin = (part if part.ndim == 3 else part[None] for part in rotation)
    start = torch.atan2(sin, cos)[:, grid.num_prefix]
    steps = rotation_frequencies(rotation, grid)
    places = grid.positions(cos.device) - torch.tensor(grid.origin, device=cos.device)
    places = torch.div(places, torch.tensor(grid.steps, device=cos.device), rounding_mode="floor")
    angles = start[:, None] + places.to(steps.dtype) @ steps
    close = all(
        torch.allclose(made, given[:, grid.num_prefix :], atol=1e-4)
        for made, given in ((angles.cos(), cos), (angles.sin(), sin))
    )
    still = bool((cos[:, : grid.num_prefix] == 1).all())
    if close and still:
        return {"start": packer.add(start.float().cpu().numpy()), "steps": packer.add(steps.float().cpu().numpy())}
    return {"cos": packer.add(cos.float().cpu().numpy()), "sin": packer.add(sin.float().cpu().numpy())}


def _pack_vectors(packer: Packer, call: AttentionCall, part: RelativeVectors) -> dict[str, Any]:
    """Relative vectors: table (H or 1, R, D) and the relation of every pair, -1 for none: (Nq, Nk), or of coordinates
    along one axis."""
    index = part.index
    if part.axis is None and index.ndim != 2:
        raise ValueError("the explorer needs the same terms for all images, got relative vectors per image")
    return {
        "table": packer.add_rounded(part.table.detach().float().cpu().numpy()),
        "index": packer.add(index.to(torch.int16).cpu().numpy()),
        "axis": part.axis,
    }


def _pack_masks(packer: Packer, visible: Tensor, windows: int) -> dict[str, Description]:
    """What each window sees, (B W, 1, Nq, Nk): the patterns that occur, and which a window has."""
    patterns = visible.cpu().unflatten(0, (-1, windows))
    if visible.shape[1] != 1 or not bool((patterns == patterns[:1]).all()):
        raise ValueError("the explorer needs the same mask for all images and heads")
    found, of = patterns[0, :, 0].flatten(1).unique(dim=0, return_inverse=True)
    shape = (len(found), *visible.shape[2:])
    return {
        "table": packer.add(found.reshape(shape).to(torch.uint8).numpy()),
        "of": packer.add(of.to(torch.int32).numpy()),
    }


def _pack_pairs(packer: Packer, values: Tensor, q: TokenGrid, k: TokenGrid) -> dict[str, Description]:
    """Logits of all pairs (..., H or 1, Nq, Nk): by relation where pairs of one offset agree, else pair by pair."""
    values = values.detach().float().reshape((1,) * (4 - values.ndim) + values.shape)
    if len(values) > 1 and not bool((values == values[:1]).all()):
        raise ValueError("the explorer needs the same terms for all images, got a bias or mask per image")
    values = values[0].expand(-1, q.num_tokens, k.num_tokens).cpu()
    flat = values.flatten(1)
    if q == k:
        index = _relations(q)
        pairs = index.flatten()
        relations = int(pairs.max()) + 1
        table = flat.new_zeros(flat.shape[0], relations).index_copy(1, pairs, flat)
        if relations <= 65536 and torch.allclose(table[:, pairs], flat, rtol=1e-5, atol=1e-5):
            return {"table": packer.add_rounded(table.numpy()), "index": packer.add(index.numpy().astype(np.uint16))}
    return {"table": packer.add_rounded(flat.numpy())}


def _relations(grid: TokenGrid) -> Tensor:
    """A number for the relation of every pair, int64 (N, N): the offset, and one for each pair with a prefix token."""
    spans = [2 * size - 1 for size in grid.size]
    shifted = offsets(grid, grid) + torch.tensor([size - 1 for size in grid.size])
    index = torch.zeros(grid.num_patches, grid.num_patches, dtype=torch.int64)
    for axis, span in enumerate(spans):
        index = index * span + shifted[..., axis]
    count = torch.Size(spans).numel()
    tokens, prefix = grid.num_tokens, grid.num_prefix
    whole = torch.empty(tokens, tokens, dtype=torch.int64)
    whole[:prefix] = count + torch.arange(prefix * tokens).reshape(prefix, tokens)
    whole[prefix:, :prefix] = (
        count + prefix * tokens + torch.arange((tokens - prefix) * prefix).reshape(tokens - prefix, prefix)
    )
    whole[prefix:, prefix:] = index
    return whole


def _as_logits(visible: Tensor) -> Tensor:
    return torch.zeros(visible.shape).masked_fill(~visible.cpu(), float("-inf"))
