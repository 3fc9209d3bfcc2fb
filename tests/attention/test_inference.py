"""Inference takes shorter ways than training; they lead to the same numbers, alone and where layers share geometry."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from tests.attention.cases import FAST, encoding_cases, expressible
from tests.encodings.build import HEAD_DIM, HEADS, SCALE, build, grid_pairs, native_grid, refuses
from vit_rpe import TokenGrid, create_encoding
from vit_rpe.attention import attend
from vit_rpe.attention.rotation import rotate, rotate_both
from vit_rpe.models.vision.vit import VisionTransformer
from vit_rpe.position.geometry_cache import sharing


def projected(q_grid: TokenGrid, k_grid: TokenGrid, batch: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v as a layer makes them: parts of one result where both grids are the same."""
    generator = torch.Generator().manual_seed(2)
    if q_grid == k_grid:
        joint = torch.randn(batch, q_grid.num_tokens, 3, HEADS, HEAD_DIM, dtype=torch.float64, generator=generator)
        q, k, v = joint.permute(2, 0, 3, 1, 4).unbind(0)
        return q, k, v
    shapes = ((batch, HEADS, grid.num_tokens, HEAD_DIM) for grid in (q_grid, k_grid, k_grid))
    q, k, v = (torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes)
    return q, k, v


@pytest.mark.parametrize("prefix", [0, 2])
@pytest.mark.parametrize("situation", ["native", "window", "bigger", "cross", "pooled"])
@pytest.mark.parametrize(("name", "axes", "options"), encoding_cases())
def test_same_as_with_gradients(name: str, axes: int, options: dict[str, Any], situation: str, prefix: int) -> None:
    native = native_grid(axes, prefix)
    q_grid, k_grid = grid_pairs(axes, prefix)[situation]
    if refuses(name, options, native, q_grid, k_grid):
        return
    encoding = build(name, native, options)
    q, k, v = projected(q_grid, k_grid)
    expected = attend(q, k, v, encoding(q_grid, k_grid), scale=SCALE, impl="eager").detach()
    with torch.no_grad(), sharing():
        for impl in FAST:
            for _ in range(2):  # the second call finds what the first has shared
                terms = encoding(q_grid, k_grid)
                if expressible(impl, terms):
                    assert_close(attend(q, k, v, terms, scale=SCALE, impl=impl), expected)


@pytest.mark.parametrize("other", ["rope", "bias", "deberta"])
@pytest.mark.parametrize("prefix", [0, 1])
def test_a_constant_of_the_keys_beside_other_terms(other: str, prefix: int) -> None:
    """It is added to the queries where nothing is rotated and no token is without position."""
    grid = native_grid(2, prefix)
    model = VisionTransformer(
        img_size=(8, 12), patch_size=4, num_classes=2, embed_dim=24, depth=2, num_heads=2,
        rpe=["transformer_xl", other],
        class_token=prefix > 0,
    ).double().eval()  # fmt: skip
    assert model.grid == grid
    x = torch.randn(2, 3, 8, 12, dtype=torch.float64)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-0.3, 0.3)
        found = model(x)
        for attention in model.attentions():
            attention.attn_impl = "eager"
        assert_close(found, model(x))


@pytest.mark.parametrize("heads", [False, True])
def test_queries_and_keys_turn_together(heads: bool) -> None:
    q, k, _ = projected(native_grid(2), native_grid(2))
    angles = torch.randn(*(HEADS,) * heads, q.shape[2], HEAD_DIM // 2, dtype=torch.float64)
    turn = (angles.cos(), angles.sin())
    with torch.no_grad():
        for first, second in ((q, k), (k, q), (q.contiguous(), k), (q, k.flip(0)), (q[:, :, :0], k[:, :, :0])):
            if second.shape[2] != q.shape[2]:
                turn = (turn[0][..., :0, :], turn[1][..., :0, :])
            both = rotate_both(first, second, turn, turn)
            assert_close(both, (rotate(first, turn), rotate(second, turn)))


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
@pytest.mark.parametrize("rpe", ["bias", "rope_mixed", "deberta", "t5"])
def test_models_of_an_ensemble_run_under_vmap(rpe: str) -> None:
    models = [
        VisionTransformer(img_size=8, patch_size=4, num_classes=2, embed_dim=24, depth=2, num_heads=2, rpe=rpe,
                          class_token=True).eval()
        for _ in range(3)
    ]  # fmt: skip
    parameters, buffers = torch.func.stack_module_state(models)
    base = copy.deepcopy(models[0])
    x = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        found = torch.vmap(lambda p, b: torch.func.functional_call(base, (p, b), (x,)))(parameters, buffers)
        assert_close(found, torch.stack([model(x) for model in models]))


def test_weights_changed_in_place_show_at_once() -> None:
    """Nothing of a forward is left for the next one, whichever way the weights are changed."""
    for rpe in ("bias", "cpb", "rope_mixed", "deberta", "shaw", "irpe", "t5", "transformer_xl"):
        model = VisionTransformer(img_size=8, patch_size=4, num_classes=2, embed_dim=24, depth=2, num_heads=2, rpe=rpe)
        model.eval()
        x = torch.randn(1, 3, 8, 8)
        with torch.no_grad():
            before = model(x)
            for name, parameter in model.named_parameters():
                if ".rpe." in name:
                    parameter.data.copy_(torch.randn_like(parameter))
            assert not torch.equal(model(x), before), rpe


def test_what_an_encoding_shares_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from vit_rpe.encodings import irpe

    calls = []
    count = irpe.count_reached
    monkeypatch.setattr(irpe, "count_reached", lambda *args: calls.append(1) or count(*args))
    model = VisionTransformer(img_size=8, patch_size=4, num_classes=2, embed_dim=24, depth=5, num_heads=2, rpe="irpe")
    model.eval()
    for _ in range(2):
        calls.clear()
        model(torch.randn(1, 3, 8, 8))
        assert len(calls) == 2, "rows and columns, for five layers"
    calls.clear()
    encoding = create_encoding("irpe", 2, 12, TokenGrid((2, 2)))
    for _ in range(2):
        encoding(encoding.grid, encoding.grid)
    assert len(calls) == 4, "outside a forward every call computes its own"
