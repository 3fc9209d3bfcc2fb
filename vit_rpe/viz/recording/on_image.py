"""From the attention of windows, grids and pooled tokens to maps over the patches of the image.

A query is a patch of the image; in later stages it is the token that covers it. The weight of a key that covers several
patches is spread evenly over them. Weight that falls on padding lies nowhere on the image and is missing from the sum.

Legend: B samples, W windows of one image, H heads, N tokens of a call, P grid tokens, p patches of the image, n axes.
"""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from vit_rpe.attention import AttentionCall, LazyTerms
from vit_rpe.models.families import Sight
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.position.slicing import rows_of, take_rows, window_grid, window_tokens
from vit_rpe.viz.recording.query import Query

Size = tuple[int, ...]


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
    index = torch.zeros_like(beyond, dtype=torch.int64)
    for axis, side in enumerate(sight.image):
        index = index * side + places[..., axis]
    return index.masked_fill(beyond, -1)


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


def covering(place: Size, factors: Size, size: Size) -> Size:
    """The token that covers a patch."""
    return tuple(min(at // by, side - 1) for at, by, side in zip(place, factors, size, strict=True))


def spread(values: Tensor, factors: Size, size: Size) -> Tensor:
    """Values of tokens (..., t_1, ..., t_n) shared out evenly over the patches they cover, (..., s_1, ..., s_n)."""
    for axis, (by, side) in enumerate(zip(factors, size, strict=True)):
        dim = axis - len(size)
        if by == 1 and values.shape[dim] == side:
            continue
        owner = torch.arange(side, device=values.device) // by
        covered = owner < values.shape[dim]  # a pooling may leave the last ones over
        count = owner[covered].bincount(minlength=values.shape[dim]).clamp(min=1)
        shape = [-1] + [1] * (-1 - dim)
        shared = (values / count.view(shape)).index_select(dim, owner.clamp(max=values.shape[dim] - 1))
        values = shared * covered.view(shape)
    return values


def map_of(call: AttentionCall, sight: Sight, image: Size, query: Size | str) -> Tensor:
    """Where one patch of the image looks, or the class token, or all patches on average.

    Args:
        call: of the layer, for all windows.
        sight: what it sees.
        image: patches of the image per axis.
        query: the patch, ``"mean"``, or ``"class"`` where a class token stands before the queries.

    Returns:
        (B, H, prefix + p).
    """
    windows = len(sight.origins)
    keys = token_places(sight, sight.k_grid, call.q.device)
    if query == "mean":
        return _mean(call, sight, keys, image)
    if query == "class":
        return _on_image(_row(call, sight.q_grid, (0,) * sight.q_grid.ndim, prefix=0), sight, keys[0], image)
    assert isinstance(query, tuple)
    token = covering(query, patches_per_token(image, sight.image), sight.image)
    if sight.is_whole:
        weights = _row(call, sight.q_grid, covering(token, sight.q_grid.steps, sight.q_grid.size))
        return _on_image(weights, sight, keys[0], image)
    token = tuple(at // step * step for at, step in zip(token, sight.q_grid.steps, strict=True))
    flat = _flat(token, sight.image)
    window, slot = (token_places(sight, sight.q_grid, call.q.device) == flat).nonzero()[0].tolist()
    here = _rows(call, torch.arange(window, call.q.shape[0], windows, device=call.q.device))
    return _on_image(_row(here, sight.q_grid, _place(slot, sight.q_grid.size)), sight, keys[window], image)


def pooled_map(call: AttentionCall, sight: Sight, image: Size, query: Query) -> Tensor:
    """Where one query of a pooling layer looks, by its number or ``"class"`` for the first, or ``"mean"``.

    Returns:
        (B, H, prefix + p).

    Raises:
        ValueError: a patch, or a query that does not exist.
    """
    number = call.q.shape[2]
    if isinstance(query, tuple) or (isinstance(query, int) and not 0 <= query < number):
        raise ValueError(
            f"query {query!r} names no query of a layer that pools: it has {number}; use a number, 'class' or 'mean'"
        )
    weights = call.weights()
    row = weights.mean(dim=2) if query == "mean" else weights[:, :, query if isinstance(query, int) else 0]
    return _on_image(row, sight, token_places(sight, sight.k_grid, row.device)[0], image)


def _mean(call: AttentionCall, sight: Sight, keys: Tensor, image: Size) -> Tensor:
    queries = token_places(sight, sight.q_grid, call.q.device)
    windows, prefix = len(sight.origins), sight.q_grid.num_prefix
    total: Tensor | None = None
    for window in range(windows):
        here = _rows(call, torch.arange(window, call.q.shape[0], windows, device=call.q.device))
        weights = here.weights()[:, :, prefix:][:, :, queries[window] >= 0].sum(dim=2)
        added = _on_image(weights, sight, keys[window], image)
        total = added if total is None else total + added
    assert total is not None
    return total / int((queries >= 0).sum())


def _on_image(weights: Tensor, sight: Sight, keys: Tensor, image: Size) -> Tensor:
    """One row of weights (B, H, N) to (B, H, prefix + p)."""
    grid = sight.k_grid
    prefix, weights = weights[..., : grid.num_prefix], weights[..., grid.num_prefix :]
    factors = patches_per_token(image, sight.image)
    if sight.is_whole and grid.num_patches != prod(sight.image):
        tokens = weights.unflatten(-1, grid.size)
        factors = tuple(by * step for by, step in zip(factors, grid.steps, strict=True))
    else:
        real = keys >= 0
        tokens = weights.new_zeros(*weights.shape[:-1], prod(sight.image))
        tokens = tokens.index_copy(-1, keys[real], weights[..., real]).unflatten(-1, sight.image)
    return torch.cat([prefix, spread(tokens, factors, image).flatten(-len(image))], dim=-1)


def _rows(call: AttentionCall, rows: Tensor) -> AttentionCall:
    """The same call for some of its B W rows."""
    if len(rows) == call.q.shape[0]:
        return call
    visible = call.visible
    if visible is not None and visible.shape[0] != 1:
        visible = visible[rows]
    return call._replace(q=call.q[rows], k=call.k[rows], v=call.v[rows], visible=visible)


def _row(call: AttentionCall, grid: TokenGrid, place: Size, prefix: int | None = None) -> Tensor:
    """The weights of the query at one place of its grid, (B, H, Nk); only its row of the grid is computed.

    With the first row come the prefix tokens; ``prefix`` is the number of one that is meant.

    The position may know the queries by another grid of the same size than the image does (tokens that a stride left).
    """
    grid = call.q_grid or grid
    first, last = place[0], place[0] + 1
    rows, tokens = window_grid(grid, first, last), window_tokens(grid, first, last)
    position = call.position
    if isinstance(position, LazyTerms):
        terms = position.build(rows, position.k_grid)
    else:
        assert call.k_grid is not None
        terms = take_rows(position._replace(grids=(grid, call.k_grid)), first, last)
    part = call._replace(
        q=call.q[:, :, slice(*tokens)],
        position=terms,
        visible=None if call.visible is None else rows_of(call.visible, tokens),
        q_grid=rows,
    )
    number = rows.num_prefix + _flat(place[1:], grid.size[1:]) if prefix is None else prefix
    return part.weights()[:, :, number]


def _flat(place: Size, size: Size) -> int:
    """The row-major number of a place."""
    number = 0
    for at, side in zip(place, size, strict=True):
        number = number * side + at
    return number


def _place(number: int, size: Size) -> Size:
    """The place of a row-major number."""
    place: list[int] = []
    for side in reversed(size):
        number, at = divmod(number, side)
        place.append(at)
    return tuple(reversed(place))
