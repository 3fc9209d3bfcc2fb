"""From the attention of windows, grids and pooled tokens to maps over the patches of the image.

A query is a patch of the image; in later stages it is the token that covers it. The weight of a key that covers several
patches is spread evenly over them. Weight that falls on padding lies nowhere on the image and is missing from the sum.

Legend: B samples, W windows of one image, H heads, N tokens of a call, P grid tokens, p patches of the image, n axes.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from vit_rpe.attention import AttentionCall
from vit_rpe.models.families import Sight
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.viz.recording.parts import grid_rows, parts_of, window_rows
from vit_rpe.viz.recording.query import Query

Size = tuple[int, ...]


class Placement(NamedTuple):
    """Where the patches of the image are in the calls of one layer; tokens of all windows are counted on, w N + token.

    Attributes:
        query_of: the query that a patch asks by, int64 (p,).
        key_of: the key that answers for a patch, int64 (p,); -1 where none does.
        share: the part of that key's weight which lies on the patch, (p,).
        token_of: the token of the layer's stage that covers a patch, int64 (p,).
    """

    query_of: Tensor
    key_of: Tensor
    share: Tensor
    token_of: Tensor


def placement(sight: Sight, image: Size, device: torch.device) -> Placement:
    """Where the patches of an image are in a layer's calls.

    Raises:
        ValueError: the layer's stage is not the image merged by powers of two, or has tokens that never ask.
    """
    factors = patches_per_token(image, sight.image)
    token_of = TokenGrid(image).positions(device) // torch.tensor(factors, device=device)
    token_of = _flat(token_of, sight.image)
    key_of = _owners(sight, sight.k_grid, device)[token_of]
    keys = len(sight.origins) * sight.k_grid.num_tokens
    count = key_of[key_of >= 0].bincount(minlength=keys)
    share = (key_of >= 0) / count.clamp(min=1)[key_of.clamp(min=0)]
    if sight.pools:
        return Placement(torch.zeros_like(key_of), key_of, share, token_of)
    query_of = _owners(sight, sight.q_grid, device)
    if sight.is_whole:  # what a stride leaves over asks by its neighbour
        steps, last = (torch.tensor(each, device=device) for each in (sight.q_grid.steps, sight.q_grid.size))
        near = torch.minimum(TokenGrid(sight.image).positions(device) // steps, last - 1)
        query_of = query_of.where(query_of >= 0, sight.q_grid.num_prefix + _flat(near, sight.q_grid.size))
    if bool((query_of < 0).any()):
        raise ValueError(f"some tokens of a stage of {sight.image} are in no window of {sight.q_grid.size}")
    return Placement(query_of[token_of], key_of, share, token_of)


def token_places(sight: Sight, grid: TokenGrid, device: torch.device) -> Tensor:
    """Which token of the stage each grid token of every window is, row-major, int64 (W, P); -1 is padding."""
    origins = torch.tensor(sight.origins, device=device)[:, None]  # (W, 1, n)
    steps = torch.tensor(sight.spread or (1,) * grid.ndim, device=device)
    places = origins + grid.positions(device) * steps
    rolled = torch.tensor(sight.rolled or sight.image, device=device)
    beyond = (places >= rolled).any(dim=-1)
    if sight.shift is not None:
        places = (places + torch.tensor(sight.shift, device=device)) % rolled
    beyond |= (places >= torch.tensor(sight.image, device=device)).any(dim=-1)
    return _flat(places, sight.image).masked_fill(beyond, -1)


def _owners(sight: Sight, grid: TokenGrid, device: torch.device) -> Tensor:
    """The token of a call that stands for each token of the stage, w N + token; -1 for none."""
    steps = torch.tensor(grid.steps, device=device)
    covered = TokenGrid(tuple(side * by for side, by in zip(grid.size, grid.steps, strict=True)))
    slots = grid.num_prefix + _flat(covered.positions(device) // steps, grid.size)
    places = token_places(sight, covered, device)
    tokens = torch.arange(len(places), device=device)[:, None] * grid.num_tokens + slots
    owners = torch.full((prod(sight.image),), -1, device=device)
    owners[places[places >= 0]] = tokens[places >= 0]
    return owners


def patches_per_token(image: Size, stage: Size) -> Size:
    """How many patches of the image a token of a later stage covers along each axis: a power of two.

    Raises:
        ValueError: the stage is not the image merged by powers of two.
    """
    found = []
    for side, tokens in zip(image, stage, strict=True):
        factor = 1
        while -(-side // factor) > tokens:
            factor *= 2
        if -(-side // factor) != tokens:
            raise ValueError(f"a stage of {stage} tokens is not the image of {image} patches merged by twos")
        found.append(factor)
    return tuple(found)


def map_of(call: AttentionCall, sight: Sight, image: Size, query: Query) -> Tensor:
    """Where one patch of the image looks, or all of them on average (``"mean"``).

    Args:
        call: of the layer, for all windows.
        sight: what it sees.
        image: patches of the image per axis.
        query: the patch; a token's number, or ``"class"`` for the first, where there is one window; ``"mean"``.

    Returns:
        (B, H, prefix + p).
    """
    place = placement(sight, image, call.q.device)
    if query == "mean":
        mass = torch.bincount(place.query_of, minlength=len(sight.origins) * sight.q_grid.num_tokens)
        asked = mass.to(call.q.dtype) / len(place.query_of)
        return spread(attended_mass(call, sight, asked[None])[0], sight, place)
    token = int(place.query_of[number(query, image)]) if isinstance(query, tuple) else int(query != "class" and query)
    window, token = divmod(token, sight.q_grid.num_tokens)
    here = window_rows(call, len(sight.origins), slice(window, window + 1))
    width = sight.q_grid.num_patches // sight.q_grid.size[0]
    row = max(0, token - sight.q_grid.num_prefix) // width
    part, tokens = grid_rows(here, sight, row, row + 1)
    return _of_window(part.weights()[:, :, token - tokens.start], sight, place, window)


def place_map(weights: Tensor, sight: Sight, image: Size, query: Query) -> Tensor:
    """The same from values of all pairs of a layer, (B W, H, Nq, Nk)."""
    place, windows = placement(sight, image, weights.device), len(sight.origins)
    weights = weights.unflatten(0, (-1, windows)).movedim(1, 2)  # (B, H, W, Nq, Nk)
    if query == "mean":
        share = torch.bincount(place.query_of, minlength=windows * weights.shape[3]).to(weights.dtype)
        asked = (share / len(place.query_of)).view(windows, -1, 1)
        return spread((weights * asked).sum(dim=3).flatten(2), sight, place)
    token = int(place.query_of[number(query, image)]) if isinstance(query, tuple) else int(query != "class" and query)
    window, token = divmod(token, weights.shape[3])
    return _of_window(weights[:, :, window, token], sight, place, window)


def pooled_map(weights: Tensor, sight: Sight, image: Size, query: Query) -> Tensor:
    """Where one query of a pooling layer looks, by its number or ``"class"`` for the first, or ``"mean"``.

    Args:
        weights: (B, H, Nq, Nk).

    Returns:
        (B, H, prefix + p).

    Raises:
        ValueError: a patch, or a query that does not exist.
    """
    queries = weights.shape[2]
    if isinstance(query, tuple) or (isinstance(query, int) and not 0 <= query < queries):
        raise ValueError(
            f"query {query!r} names no query of a layer that pools: it has {queries}; use a number, 'class' or 'mean'"
        )
    row = weights.mean(dim=2) if query == "mean" else weights[:, :, query if isinstance(query, int) else 0]
    return spread(row, sight, placement(sight, image, row.device))


def attended_mass(
    call: AttentionCall, sight: Sight, asked: Tensor, *, mix: float | None = None
) -> tuple[Tensor, Tensor]:
    """How much of a mass on the queries arrives at the keys; no map of all pairs is made.

    Args:
        asked: (B or 1, W Nq), with prefix tokens.
        mix: share of a residual connection: then heads are averaged, and the row of a query counts by one over
            ``mix`` plus its sum times ``1 - mix``, what keeps mixed rows at one where weight falls on padding.

    Returns:
        (B, H or 1, W Nk), and by what each query was counted, (B or 1, W Nq).
    """
    windows, keys = len(sight.origins), sight.k_grid.num_tokens
    batch, heads = call.q.shape[0] // windows, call.q.shape[1] if mix is None else 1
    found = call.q.new_zeros(batch, heads, windows, keys)
    asked = asked.unflatten(1, (windows, -1))
    counted = torch.ones(batch, *asked.shape[1:], dtype=asked.dtype, device=asked.device)
    real = _real_keys(sight, call.q.device)
    for part, some, tokens in parts_of(call, sight):
        mass = asked[:, some, tokens]
        if not bool((mass != 0).any()):
            continue
        weights = part.weights().unflatten(0, (batch, -1)).to(found.dtype)  # (B, w, H, Nq, Nk)
        if mix is not None:
            weights = weights.mean(dim=2, keepdim=True)
            total = (weights[:, :, 0] * real[some, None]).sum(dim=-1)
            counted[:, some, tokens] = 1 / ((1 - mix) * total + mix)
            mass = mass * counted[:, some, tokens]
        found[:, :, some] += torch.einsum("bwq,bwhqk->bhwk", mass.expand(batch, -1, -1), weights)
    return found.flatten(2), counted.flatten(1)


def _real_keys(sight: Sight, device: torch.device) -> Tensor:
    """Which keys are no padding, bool (W, Nk)."""
    keys = _owners(sight, sight.k_grid, device)
    real = torch.zeros(len(sight.origins) * sight.k_grid.num_tokens, dtype=torch.bool, device=device)
    real[keys[keys >= 0]] = True
    real = real.view(-1, sight.k_grid.num_tokens)
    real[:, : sight.k_grid.num_prefix] = True
    return real


def spread(values: Tensor, sight: Sight, place: Placement) -> Tensor:
    """Values of all keys (..., W Nk) to (..., prefix + p): those of prefix tokens, and of others shared out evenly."""
    patches = values[..., place.key_of.clamp(min=0)] * place.share.to(values.dtype)
    return torch.cat([values[..., : sight.k_grid.num_prefix], patches], dim=-1)


def _of_window(values: Tensor, sight: Sight, place: Placement, window: int) -> Tensor:
    """The same for values of the keys of one window, (..., Nk)."""
    slots = place.key_of - window * sight.k_grid.num_tokens
    here = (slots >= 0) & (slots < sight.k_grid.num_tokens)
    place = place._replace(key_of=slots.where(here, -1), share=place.share * here)
    return spread(values, sight, place)


def _flat(places: Tensor, size: Size) -> Tensor:
    """Row-major numbers of places (..., n)."""
    index = torch.zeros(places.shape[:-1], dtype=torch.int64, device=places.device)
    for axis, side in enumerate(size):
        index = index * side + places[..., axis]
    return index


def number(place: Size, size: Size) -> int:
    """The row-major number of a place."""
    return int(_flat(torch.tensor(place), size))
