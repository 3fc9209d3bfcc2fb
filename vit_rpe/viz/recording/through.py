"""What is computed from all queries of a layer without a map of all pairs: rollout from one query, mean distance.

Legend: B samples, W windows of one image, H heads, N tokens of a call, p patches of the image, n axes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from vit_rpe.attention import AttentionCall
from vit_rpe.models.families import Sight, without_map
from vit_rpe.position.geometry import TokenGrid
from vit_rpe.viz.recording.on_image import Placement, attended_mass, number, placement, pooled_map, spread
from vit_rpe.viz.recording.parts import parts_of
from vit_rpe.viz.recording.query import Query

Size = tuple[int, ...]


class Rollout(NamedTuple):
    """Attention rollout of one query.

    Attributes:
        weights: (B, prefix + p), rows sum to 1.
        approximate: why other layers than attention move content between patches here; None where none does.
    """

    weights: Tensor
    approximate: str | None


class Layer(NamedTuple):
    """A layer that rollout passes: its call, what it sees, and whether its query is the class token itself."""

    call: AttentionCall
    sight: Sight
    is_class_attention: bool = False


def roll(layers: Iterable[Layer], image: Size, query: Query, residual: float) -> Tensor:
    """Carry a vector for one query from the last layer to the image: as :func:`vit_rpe.viz.rollout`, never N x N.

    In later stages a patch stands for the token that covers it, whose content is that of its patches in equal parts.

    Args:
        layers: last layer first.
        image: patches per axis.
        query: a patch, ``"class"`` (where the model pools, what it pools to) or ``"mean"``.
        residual: share of the identity.

    Returns:
        (B, prefix + p).

    Raises:
        ValueError: tokens that change from layer to layer, or nothing to start from.
    """
    state: Tensor | None = None
    for call, sight, by_class in layers:
        if sight.pools and state is None and query != "class":
            continue
        place = placement(sight, image, call.q.device)
        if sight.pools:
            state = _pooled(call, sight, image, state, residual if by_class else None)
            continue
        if sight.q_grid.num_prefix != sight.k_grid.num_prefix or (sight.q_grid.num_prefix and not sight.is_whole):
            raise ValueError("rollout needs the same prefix tokens as queries and as keys, and in one window")
        if state is None:
            state = _start(query, image, sight.q_grid.num_prefix, call.q)
        state = _through(call, sight, place, state, residual)
    if state is None:
        raise ValueError("rollout of patches needs a layer in which patches ask: use query 'class'")
    return state


def _start(query: Query, image: Size, prefix: int, like: Tensor) -> Tensor:
    patches = TokenGrid(image).num_patches
    state = like.new_zeros(1, prefix + patches)
    if query == "mean":
        state[:, prefix:] = 1 / patches
    elif query == "class":
        state[:, 0] = 1
    else:
        state[:, prefix + number(query, image) if isinstance(query, tuple) else int(query)] = 1
    return state


def _pooled(call: AttentionCall, sight: Sight, image: Size, state: Tensor | None, residual: float | None) -> Tensor:
    """From the output of a pooling layer; with a residual its query is the class token, first of the keys."""
    row = pooled_map(call.weights(), sight, image, "class").mean(dim=1)
    if residual is None:
        return row
    own = torch.zeros_like(row)
    own[:, 0] = 1
    mixed = (1 - residual) * row + residual * own
    return mixed if state is None else state + state[:, :1] * (mixed - own)


def _through(call: AttentionCall, sight: Sight, place: Placement, state: Tensor, residual: float) -> Tensor:
    prefix = sight.q_grid.num_prefix
    later = state.shape[1] - len(place.query_of) - prefix  # prefix tokens that come behind this layer (CaiT)
    if later < 0:
        raise ValueError("rollout needs prefix tokens that stay from layer to layer")
    kept_back, state = state[:, :later], state[:, later:]
    patches = state[:, prefix:]
    count = place.token_of.bincount()
    tokens = patches.new_zeros(len(state), len(count)).index_add(1, place.token_of, patches)
    patches = (tokens / count.clamp(min=1))[:, place.token_of]
    asked = patches.new_zeros(len(state), len(sight.origins) * sight.q_grid.num_tokens)
    asked = asked.index_add(1, place.query_of, patches)
    asked[:, :prefix] += state[:, :prefix]
    keys, counted = attended_mass(call, sight, asked, mix=residual)
    kept = torch.cat([state[:, :prefix] * counted[:, :prefix], patches * counted[:, place.query_of]], dim=1)
    carried = (1 - residual) * spread(keys[:, 0], sight, place) + residual * kept
    return torch.cat([kept_back.expand(len(carried), -1), carried], dim=1)


def distance(call: AttentionCall, sight: Sight, image: Size) -> Tensor:
    """Mean attention distance in patches of the image, between the centres of tokens, (B, H).

    As :func:`vit_rpe.viz.mean_distance`: prefix tokens and padding are left out and the rest renormalised.
    """
    windows = len(sight.origins)
    place = placement(sight, image, call.q.device)
    patches = TokenGrid(image).positions(call.q.device).to(call.q.dtype)
    q, asks = _centres(patches, place.query_of, windows, sight.q_grid.num_tokens)
    k, answers = _centres(patches, place.key_of, windows, sight.k_grid.num_tokens)
    batch = call.q.shape[0] // windows
    total = call.q.new_zeros(batch, call.q.shape[1])
    number_of = torch.zeros_like(total)
    for part, some, tokens in parts_of(call, sight):
        far = (q[some, tokens][:, :, None] - k[some][:, None]).norm(dim=-1)[:, None]  # (w, 1, Nq, Nk)
        weights = part.weights().unflatten(0, (batch, -1)) * answers[some][:, None, None]
        mass = weights.sum(dim=-1)
        each = (weights * far).sum(dim=-1) / mass.clamp_min(torch.finfo(mass.dtype).tiny)
        counts = (mass > 0) & asks[some, tokens][:, None]
        total += (each * counts).sum(dim=(1, 3))
        number_of += counts.sum(dim=(1, 3))
    return total / number_of.clamp_min(1)


def _centres(patches: Tensor, owner: Tensor, windows: int, tokens: int) -> tuple[Tensor, Tensor]:
    """The mean place of the patches of every token of a call, (W, N, n), and which tokens have any, (W, N)."""
    there = owner >= 0
    count = owner[there].bincount(minlength=windows * tokens)
    total = patches.new_zeros(windows * tokens, patches.shape[1]).index_add(0, owner[there], patches[there])
    centres = total / count.clamp(min=1)[:, None]
    return centres.view(windows, tokens, -1), (count > 0).view(windows, tokens)


def moved_between(model: nn.Module, layers: list[str]) -> str | None:
    """Why content moves between patches other than by the recorded attention; None where nothing else moves it.

    Args:
        layers: names of the attention layers.
    """
    modules = dict(model.named_modules())
    names = list(modules)
    blind = next((name for name in names if without_map(modules[name])), None)
    if blind is not None:
        return f"{blind} attends without a map over tokens"
    first, last = min(map(names.index, layers)), max(map(names.index, layers))
    while last + 1 < len(names) and names[last + 1].startswith(f"{names[last]}."):
        last += 1
    found = next((name for name in names[first : last + 1] if _mixes(modules[name])), None)
    return None if found is None else f"{found} mixes neighbouring patches between the attention layers"


def _mixes(module: nn.Module) -> bool:
    """Whether a module lets patches overlap: its kernel is neither one token nor the tokens it merges."""
    if not isinstance(module, (*_CONVOLUTIONS, *_POOLINGS)):
        return False
    kernel, stride = (each if isinstance(each, tuple) else (each,) for each in (module.kernel_size, module.stride))
    return any(side not in (1, step) for side, step in zip(kernel, stride, strict=True))


_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_POOLINGS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)
