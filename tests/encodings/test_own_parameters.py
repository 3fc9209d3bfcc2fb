"""Encodings work where their parameters are no parameters: on replicas, pruned and parametrised."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune

from vit_rpe.encodings import PositionEncoding, list_encodings
from vit_rpe.layers import RelativeMultiheadAttention
from vit_rpe.position.geometry import TokenGrid

GRID = TokenGrid((3, 4), num_prefix=1)


class Same(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x


def layer_of(rpe: str) -> RelativeMultiheadAttention:
    torch.manual_seed(0)
    layer = RelativeMultiheadAttention(32, 2, rpe=rpe, grid=GRID).eval()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.3)
    return layer


def replica(module: nn.Module) -> nn.Module:
    """As ``nn.DataParallel`` makes them: tensors are attributes, and ``parameters()`` is empty."""
    copied = module._replicate_for_data_parallel()
    for name, child in module.named_children():
        setattr(copied, name, replica(child))
    for name, parameter in module._parameters.items():
        setattr(copied, name, None if parameter is None else parameter.clone())
    return copied


@pytest.mark.parametrize("rpe", list_encodings())
def test_a_replica_computes_the_same(rpe: str) -> None:
    layer = layer_of(rpe)
    x = torch.randn(2, GRID.num_tokens, 32)
    torch.testing.assert_close(replica(layer)(x, GRID), layer(x, GRID))


@pytest.mark.parametrize("how", ["prune", "parametrize"])
@pytest.mark.parametrize("rpe", list_encodings())
def test_pruned_and_parametrised_parameters_count(rpe: str, how: str) -> None:
    layer = layer_of(rpe)
    x = torch.randn(2, GRID.num_tokens, 32)
    expected = layer(x, GRID)
    changed = copy.deepcopy(layer)
    for encoding in changed.modules():
        for name in [n for n, _ in encoding.named_parameters(recurse=False)] * isinstance(encoding, PositionEncoding):
            if how == "prune":
                prune.identity(encoding, name)
            else:
                parametrize.register_parametrization(encoding, name, Same())
    torch.testing.assert_close(changed(x, GRID), expected)
