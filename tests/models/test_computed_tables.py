"""Another size where tables are pruned, parametrised or tied, or layers in their networks are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune
from torch.testing import assert_close

import vit_rpe
from tests.families.adapters import Doubled
from tests.models.tiny import images, tiny
from vit_rpe.models import SequenceTransformer

LARGER = (12, 16)


def sizes(model: Any) -> list[Any]:
    return [tuple(own.shape) for own in model.parameters()] + [model.grid]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("kind", ["pruned", "parametrised"])
def test_a_computed_table_works_and_refuses_another_size(kind: str, shared: bool) -> None:
    model: Any = tiny(rpe="bias", rpe_shared=shared).eval()
    same: Any = tiny(rpe="bias", rpe_shared=shared).eval()
    same.load_state_dict(model.state_dict())
    encoding, other = (each.rpe if shared else each.blocks[1].attn.rpe for each in (model, same))
    with torch.no_grad():
        if kind == "pruned":
            mask = (torch.arange(encoding.table.numel()) % 2 > 0).view(encoding.table.shape)
            prune.custom_from_mask(encoding, "table", mask)
            other.table *= mask
        else:
            parametrize.register_parametrization(encoding, "table", Doubled())
            other.table *= 2
    x = images()
    assert_close(model(x), same(x))
    before = sizes(model)
    with pytest.raises(ValueError, match="a parameter of 'bias' is computed from others"):
        model.set_input_size(LARGER)
    assert sizes(model) == before
    assert_close(model(x), same(x))
    if kind == "pruned":
        prune.remove(encoding, "table")
    else:
        parametrize.remove_parametrizations(encoding, "table")
    for each in (model, same):
        each.set_input_size(LARGER)
    x = images(LARGER)
    assert_close(model(x), same(x))


def test_a_sequence_model_refuses_too() -> None:
    model = SequenceTransformer(11, 6, 3, embed_dim=24, depth=2, num_heads=2)
    prune.random_unstructured(model.blocks[1].attn.rpe, "table", 0.5)
    with pytest.raises(ValueError, match="is computed from others"):
        model.set_length(8)
    assert model.length == 6


@pytest.mark.parametrize("around", ["pruned", "weight norm", "old weight norm"])
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_layers_of_a_network_are_copied_after_a_forward(around: str) -> None:
    """torch copies no module with a weight that a forward has computed."""
    model: Any = tiny(rpe="cpb").eval()
    layer = model.blocks[0].attn.rpe.fc1
    if around == "pruned":
        prune.random_unstructured(layer, "weight", 0.5)
    else:
        (parametrizations.weight_norm if around == "weight norm" else nn.utils.weight_norm)(layer)
    model(images()).sum().backward()
    expected = model.blocks[0].attn.rpe(model.grid, model.grid).offset_bias[0].detach()
    model.set_input_size(LARGER)
    again = model.blocks[0].attn.rpe
    rows, columns = expected.shape[1:]
    grid = vit_rpe.TokenGrid((rows // 2 + 1, columns // 2 + 1))
    assert_close(again(grid, grid).offset_bias[0], expected)
    model(images(LARGER)).sum().backward()
    assert all(own.grad is not None for own in again.parameters())


@pytest.mark.parametrize("rpe", ["bias", ["bias", "shaw"], "cpb"])
def test_tied_parameters_stay_tied(rpe: Any) -> None:
    model: Any = tiny(rpe=rpe)
    first, second = (block.attn.rpe for block in model.blocks)
    for one, other in zip(first.modules(), second.modules(), strict=True):
        for name, own in one.named_parameters(recurse=False):
            setattr(other, name, own)
    number = len(list(model.parameters()))
    model.set_input_size(LARGER)
    assert len(list(model.parameters())) == number
    model(images(LARGER)).sum().backward()


def test_decay_is_told_by_what_a_parameter_is_of() -> None:
    """A pruned or normalised weight of a network decays as the weight did; its biases do not."""
    for name in ("cpb", "fire", "deberta"):
        model: Any = tiny(rpe=name)
        encoding = model.blocks[0].attn.rpe
        plain = encoding.no_weight_decay()
        layers = [path for path, module in encoding.named_modules() if isinstance(module, nn.Linear)]
        for path in layers:
            prune.random_unstructured(encoding.get_submodule(path), "weight", 0.3)
        assert encoding.no_weight_decay() == plain
