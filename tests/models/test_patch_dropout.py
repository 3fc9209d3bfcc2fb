"""Patch dropout keeps other patches of every sample: positions and masks follow each of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vit_rpe
from tests.models.tiny import images, randomize, tiny

KEPT = torch.tensor([[0, 5, 23, 7], [3, 2, 1, 0], [20, 21, 9, 11]])
"""Patches that stay, by sample."""


class Keep(nn.Module):
    """Drops what timm's layer would, by a list instead of by chance."""

    def __init__(self, kept: Tensor, num_prefix: int) -> None:
        super().__init__()
        self.kept = kept
        self.num_prefix = num_prefix

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        patches = x[:, self.num_prefix :].gather(1, self.kept[..., None].expand(-1, -1, x.shape[2]))
        return torch.cat([x[:, : self.num_prefix], patches], dim=1), self.kept


def features(model: nn.Module, x: Tensor, kept: Tensor, mask: Tensor | None) -> Tensor:
    model.patch_drop = Keep(kept, model.num_prefix_tokens)
    return model.forward_features(x, attn_mask=mask)


MASKS: dict[str, tuple[int, ...]] = {
    "padding": (3, 1, 1, 26),
    "padding_of_all": (1, 1, 1, 26),
    "queries": (3, 1, 26, 1),
    "heads": (3, 3, 26, 26),
    "samples": (3, 26, 26),
    "one_for_all": (26, 26),
    "one_row": (1, 26),
}
SAMPLED = ("bias", "decomposed", "rope_mixed", "shaw", "irpe")


@pytest.mark.parametrize(
    "rpe",
    [
        name if name in SAMPLED else pytest.param(name, marks=pytest.mark.exhaustive)
        for name in vit_rpe.list_encodings()
    ],
)
def test_every_sample_as_alone(rpe: Any) -> None:
    model = randomize(tiny(rpe=rpe, class_token=True, reg_tokens=1, window=3))
    x = images()
    together = features(model, x, KEPT, None)
    alone = [features(model, x[i : i + 1], KEPT[i : i + 1], None) for i in range(3)]
    torch.testing.assert_close(together, torch.cat(alone))


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
def test_every_mask_as_if_it_were_written_out(kind: str, dtype: torch.dtype) -> None:
    model = randomize(tiny(rpe="bias", class_token=True, reg_tokens=1))
    x = images()
    mask = torch.rand(MASKS[kind]) > 0.3 if dtype == torch.bool else torch.randn(MASKS[kind]) * 3
    whole = (mask if mask.ndim == 4 else mask[(None, None) if mask.ndim == 2 else (slice(None), None)]).expand(
        3, 3, 26, 26
    )
    torch.testing.assert_close(features(model, x, KEPT, mask), features(model, x, KEPT, whole.contiguous()))
    model.patch_drop = None
    torch.testing.assert_close(model(x, attn_mask=mask), model(x, attn_mask=whole.contiguous()))


@pytest.mark.parametrize(("rpe", "kernel"), [("bias", "windows"), ("decomposed", "fold"), ("none", "windows")])
def test_a_kernel_that_needs_the_whole_grid_is_refused_when_built(rpe: str, kernel: str) -> None:
    with pytest.raises(ValueError, match=f"patch_drop_rate.*{kernel}"):
        tiny(rpe=rpe, attn_impl=kernel, patch_drop_rate=0.5)
    tiny(rpe=rpe, patch_drop_rate=0.5).train()(images())
