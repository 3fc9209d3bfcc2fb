"""The kernel that has the weights at hand, where samples differ: dropped tokens, masks, and no sample at all."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from vit_rpe import RelativeMultiheadAttention

IRPE = {"name": "irpe", "on": ("k", "v")}


@pytest.mark.parametrize("rpe", [IRPE, "shaw"])
@pytest.mark.parametrize("impl", ["auto", "explicit_weights"])
@pytest.mark.parametrize("batch", [0, 1, 3])
def test_samples_that_kept_different_tokens(rpe: object, impl: str, batch: int) -> None:
    layer = RelativeMultiheadAttention(24, 3, rpe=rpe, grid=(3, 4), attn_impl=impl).double()
    plain = RelativeMultiheadAttention(24, 3, rpe=rpe, grid=(3, 4), attn_impl="eager").double()
    for parameter in layer.rpe.parameters():
        torch.nn.init.normal_(parameter)
    plain.load_state_dict(layer.state_dict())
    x = torch.randn(batch, 5, 24, dtype=torch.float64)
    keep = torch.stack([torch.randperm(12)[:5] for _ in range(batch)]) if batch else torch.zeros(0, 5, dtype=torch.long)
    visible = torch.rand(batch, 5, 5) > 0.3
    visible[:1, 2] = False
    for options in ({}, {"visible": visible}):
        expected = plain(x, keep=keep, **options)
        assert_close(layer(x, keep=keep, **options), expected)
        with torch.no_grad():
            assert_close(layer(x, keep=keep, **options), expected.detach())
