"""Conditional position: the published sum over neighbours, and what models do with it."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from tests.models.test_patch_dropout import KEPT, features
from tests.models.tiny import images, randomize, tiny
from vit_rpe import TokenGrid
from vit_rpe.layers import ConditionalPosition
from vit_rpe.models import SequenceTransformer
from vit_rpe.models.export import export_model

SIZES = {1: (5,), 2: (2, 5), 3: (3, 2, 4)}
OPTIONS = {"pos_embed": "conditional", "rpe": "bias", "class_token": True, "reg_tokens": 1}


def by_loops(layer: ConditionalPosition, x: Tensor, grid: TokenGrid, there: Tensor) -> Tensor:
    """arXiv 2102.10882 for one token and neighbour at a time; ``there`` (B, N) says which tokens exist."""
    out = x.clone()
    places = list(product(*map(range, grid.size)))
    for sample, (number, place) in product(range(len(x)), enumerate(places)):
        total = layer.bias
        for other, neighbour in enumerate(places):
            step = [b - a + 1 for a, b in zip(place, neighbour, strict=True)]
            if there[sample, grid.num_prefix + other] and all(0 <= s <= 2 for s in step):
                weight = layer.weight[(slice(None), 0, *step)]
                total = total + weight * x[sample, grid.num_prefix + other]
        out[sample, grid.num_prefix + number] = x[sample, grid.num_prefix + number] + total
    return out


@pytest.mark.parametrize("axes", SIZES)
@pytest.mark.parametrize("prefix", [0, 2])
def test_the_published_sum_and_its_gradients(axes: int, prefix: int) -> None:
    grid = TokenGrid(SIZES[axes], prefix)
    layer = ConditionalPosition(4, axes, dtype=torch.float64)
    x = torch.randn(2, grid.num_tokens, 4, dtype=torch.float64, requires_grad=True)
    there = torch.rand(2, grid.num_tokens) > 0.3
    keep = torch.stack([torch.randperm(grid.num_patches)[:3] + prefix for _ in range(2)])
    keep = torch.cat([torch.arange(prefix).expand(2, -1), keep], dim=1)
    every = torch.ones_like(there)
    left = torch.zeros_like(there).scatter(1, keep, True)
    index = keep[..., None].expand(-1, -1, 4)
    pairs = [
        (layer(x, grid), by_loops(layer, x, grid, every)),
        (layer(x, grid, None, there), by_loops(layer, x, grid, there)),
        (layer(x.gather(1, index), grid, keep), by_loops(layer, x, grid, left).gather(1, index)),
    ]
    wanted = [x, layer.weight, layer.bias]
    for found, expected in pairs:
        assert_close(found, expected)
        pull = torch.randn_like(found)
        grads = (torch.autograd.grad(value, wanted, pull, retain_graph=True) for value in (found, expected))
        assert_close(*grads)


def test_a_model_takes_any_size_and_loads_at_any_other(tmp_path: Path) -> None:
    model = randomize(tiny(**OPTIONS, dynamic_img_size=True))
    own = {"blocks.0.conditional.weight", "blocks.0.conditional.bias"}
    assert own == {name for name in model.state_dict() if "conditional" in name}
    assert own <= model.no_weight_decay()
    larger = tiny(**OPTIONS, img_size=(12, 10)).eval()
    larger.load_state_dict(model.state_dict())
    x = images((12, 10))
    model.set_input_size((12, 10))
    assert_close(larger(x), model(x))
    assert_close(model.blocks[0].conditional.weight, larger.blocks[0].conditional.weight, rtol=0, atol=0)
    assert model(images((6, 14))).shape == (3, 5)
    expected = model(x)
    model.freeze()
    assert_close(model(x), expected)
    model.unfreeze()
    for size in (False, True):
        found = export_model(model, tmp_path / "a.pt2", file_format="torch_export", dynamic_size=size)
        assert found <= 1e-4


def test_permuted_patches_are_told_apart_without_any_other_position() -> None:
    model = randomize(tiny(pos_embed="conditional", rpe="none"))
    x = images()
    assert (model(x) - model(x.flip(3))).abs().max() > 1e-2


def test_patches_that_are_dropped_count_as_zeros() -> None:
    model = randomize(tiny(**OPTIONS))
    x = images()
    together = features(model, x, KEPT, None)
    alone = [features(model, x[i : i + 1], KEPT[i : i + 1], None) for i in range(3)]
    assert_close(together, torch.cat(alone))
    everything = torch.arange(24).expand(3, -1)
    assert_close(features(model, x, everything, None), tiny_without_dropout(model, x))
    model = tiny(**OPTIONS, patch_drop_rate=0.5).train()
    model.set_grad_checkpointing()
    model(images()).sum().backward()
    assert model.blocks[0].conditional.weight.grad is not None


def tiny_without_dropout(model: torch.nn.Module, x: Tensor) -> Tensor:
    model.patch_drop = None
    return model.forward_features(x)


def test_padding_of_a_sequence_changes_nothing() -> None:
    torch.manual_seed(0)
    options = {"embed_dim": 24, "depth": 2, "num_heads": 3, "rpe": "t5", "pos_embed": "conditional"}
    model = randomize(SequenceTransformer(11, 9, 4, class_token=True, **options))
    ids = torch.randint(0, 11, (2, 9))
    visible = torch.arange(9).expand(2, -1) < 6
    assert_close(model(ids, visible), model(ids[:, :6]))


def test_a_causal_model_refuses_it() -> None:
    for build in (lambda: tiny(pos_embed="conditional", causal=True), lambda: causal_sequence()):
        with pytest.raises(ValueError, match="needs causal=False"):
            build()


def causal_sequence() -> SequenceTransformer:
    return SequenceTransformer(11, 9, head="lm", causal=True, pos_embed="conditional", embed_dim=24, num_heads=3)


def test_first_values_and_the_same_everywhere() -> None:
    torch.manual_seed(0)
    layer = tiny(**OPTIONS).blocks[0].conditional
    for values in (layer.weight, layer.bias):
        assert values.isfinite().all()
        assert 0.2 < values.abs().max() <= 1 / 3
    assert tiny(**OPTIONS).blocks[1].conditional is None
