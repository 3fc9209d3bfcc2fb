"""Rollout, distance and offsets across windows and stages, against maps of all pairs of patches, in plain loops."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vit_rpe import viz
from vit_rpe.models.families.samples.of_timm import build, image
from vit_rpe.viz import Recording, by_offset, record, record_class
from vit_rpe.viz.recording import parts
from vit_rpe.viz.recording.on_image import patches_per_token

CASES = [
    *("swin", "sam", "maxvit-table"),
    *(pytest.param(case, marks=pytest.mark.exhaustive) for case in ("swinv2_cr", "levit", "eva02", "dinov3")),
]
EXACT = ("swin", "swinv2_cr", "sam", "levit", "eva02", "dinov3")
RESIDUAL = 0.3


def recorded(model: nn.Module, x: Tensor) -> Recording:
    with torch.no_grad(), record(model) as seen:
        model(x)
    return seen


def places(seen: Recording) -> list[tuple[int, int]]:
    rows, columns = seen.image or (0, 0)
    return [(row, column) for row in range(rows) for column in range(columns)]


def all_pairs(seen: Recording, layer: int) -> Tensor:
    """One image's map of all tokens, prefix first, (H, prefix + p, prefix + p), query after query."""
    rows = [seen.attention(layer, query=at)[0] for at in places(seen)]
    prefix = seen.map_grid(layer).num_prefix
    first = [seen.attention(layer)[0, :, token] for token in range(prefix)]
    return torch.stack([*first, *rows], dim=1)


def token_of(seen: Recording, layer: int, at: tuple[int, int]) -> tuple[int, int]:
    stage = seen.sight(layer).image
    by = patches_per_token(seen.image or (), stage)
    return at[0] // by[0], at[1] // by[1]


def evened(seen: Recording, layer: int, state: Tensor) -> Tensor:
    """A vector over patches, equal on all patches of a token."""
    out, prefix = state.clone(), seen.map_grid(layer).num_prefix
    tokens: dict[Any, list[int]] = {}
    for number, at in enumerate(places(seen)):
        tokens.setdefault(token_of(seen, layer, at), []).append(prefix + number)
    for members in tokens.values():
        out[members] = state[members].mean()
    return out


@pytest.mark.parametrize("case", CASES)
def test_rollout_is_the_product_of_all_maps(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MOST_WEIGHTS", 2000)  # many parts
    seen = recorded(build(case), image(case))
    prefix = seen.map_grid(0).num_prefix
    queries: list[Any] = [(0, 0), (2, 1), "mean"] + (["class"] if seen.has_class_token else [])
    maps = [all_pairs(seen, layer).mean(0) for layer in range(len(seen))]
    for query in queries:
        state = torch.zeros(len(maps[0]))
        if query == "mean":
            state[prefix:] = 1 / len(places(seen))
        else:
            state[0 if query == "class" else prefix + places(seen).index(query)] = 1
        for layer in reversed(range(len(seen))):
            state = evened(seen, layer, state)
            mixed = (1 - RESIDUAL) * maps[layer] + RESIDUAL * torch.eye(len(state))
            state = state @ (mixed / mixed.sum(-1, keepdim=True))
        found = seen.rollout(query, residual=RESIDUAL)
        torch.testing.assert_close(found.weights[0], state, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(found.weights.sum(-1), torch.ones(2))
        assert (found.approximate is None) == (case in EXACT)
        if case not in EXACT:
            assert "mixes neighbouring patches" in (found.approximate or "")


def test_rollout_of_whole_images_is_the_known_one() -> None:
    seen = recorded(build("eva02"), image("eva02"))
    joint = viz.rollout(seen.attention(layer) for layer in range(len(seen)))
    torch.testing.assert_close(seen.rollout("class").weights, joint[:, 0])
    torch.testing.assert_close(seen.rollout((1, 3)).weights, joint[:, 1 + 6 + 3])
    with pytest.raises(ValueError, match="outside the grid of 4 x 6"):
        seen.rollout((4, 0))


@pytest.mark.parametrize("case", CASES)
def test_distance_is_in_patches_of_the_image(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MOST_WEIGHTS", 2000)
    seen = recorded(build(case), image(case))
    for layer in range(len(seen)):
        maps, prefix = all_pairs(seen, layer), seen.map_grid(layer).num_prefix
        sight, members = seen.sight(layer), dict[Any, list[int]]()
        if sight.q_grid.size != sight.k_grid.size:
            continue
        for number, at in enumerate(places(seen)):
            members.setdefault(token_of(seen, layer, at), []).append(number)
        centres = {
            token: [sum(places(seen)[each][axis] for each in own) / len(own) for axis in (0, 1)]
            for token, own in members.items()
        }
        for head in range(maps.shape[0]):
            total = 0.0
            for token, own in members.items():
                line = maps[head, prefix + own[0], prefix:]
                far = sum(
                    float(line[keys].sum()) * math.dist(centres[token], centres[key]) for key, keys in members.items()
                )
                total += far / float(line.sum())
            assert float(seen.distance(layer)[0, head]) == pytest.approx(total / len(members), rel=1e-4)


def test_offsets_are_those_of_the_bias(monkeypatch: pytest.MonkeyPatch) -> None:
    for case in ("swin", "sam", "eva02", "maxvit-table"):
        seen = recorded(build(case), image(case))
        with monkeypatch.context() as patch:
            patch.setattr(parts, "MOST_WEIGHTS", 100)
            found = [seen.by_offset(layer) for layer in range(len(seen))]
        for layer, values in enumerate(found):
            torch.testing.assert_close(values, by_offset(seen.bias(layer), *seen.grids(layer)), rtol=1e-4, atol=1e-5)
    swin = build("swin")
    table: Any = swin.get_parameter("layers.0.blocks.0.attn.relative_position_bias_table")
    own = recorded(swin, image("swin")).by_offset(0)  # timm's table is by query minus key
    torch.testing.assert_close(own, table.detach().T.reshape(own.shape).flip(1, 2))


@pytest.mark.parametrize("case", ["swin", "sam"])
def test_gradient_weighted_maps_lie_on_the_image(case: str) -> None:
    model, x = build(case), image(case)
    seen = record_class(model, x, 1)
    rows, columns = seen.image or (0, 0)
    for layer in range(len(seen)):
        pairs = seen.gradient_weighted(layer)
        found = seen.gradient_weighted(layer, query=(2, 3))
        assert found.shape == (2, pairs.shape[1], rows * columns)
        reach = seen.attention(layer, query=(2, 3)) > 0
        assert bool((found[~reach] == 0).all())
        assert bool((found > 0).any())
        summed = sum(seen.gradient_weighted(layer, query=at) for at in places(seen))
        torch.testing.assert_close(seen.gradient_weighted(layer, query="mean") * rows * columns, summed)


def test_where_pooling_layers_and_patches_differ() -> None:
    import timm

    from vit_rpe.models.families.samples.of_timm import randomize

    for name in ("vit_base_patch16_siglip_224", "vit_pe_core_tiny_patch16_384"):
        torch.manual_seed(0)
        model = randomize(timm.create_model(name, img_size=(64, 96), depth=2, embed_dim=24, num_heads=3)).eval()
        seen = recorded(model, torch.randn(2, 3, 64, 96))
        assert [seen.pools(layer) for layer in range(3)] == [False, False, True]
        patch = seen.rollout((1, 2)).weights
        torch.testing.assert_close(patch.sum(-1), torch.ones(2))
        pool = seen.attention(2, query=0).mean(1)
        joint = viz.rollout(seen.attention(layer) for layer in (0, 1))
        torch.testing.assert_close(seen.rollout("class").weights, torch.einsum("bk,bkj->bj", pool, joint))
        prefix = seen.map_grid(0).num_prefix
        torch.testing.assert_close(patch, joint[:, prefix + 6 + 2])
