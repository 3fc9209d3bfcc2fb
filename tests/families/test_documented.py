"""The attention that docs/pictures.md describes in a few lines: its maps, on the image and in a page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vit_rpe.models.families import _registry
from vit_rpe.viz import record
from vit_rpe.viz.explorer.write import explorer_page

PAGE = Path(__file__).parents[2] / "docs" / "pictures.md"


class RowAttention(nn.Module):
    """Each row of an image by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads, self.scale = 2, 0.7
        self.qkv, self.proj = nn.Linear(12, 36), nn.Linear(12, 12)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 6)).permute(3, 0, 4, 1, 2, 5)
        weights = (q @ k.mT * self.scale).softmax(-1)
        return self.proj((weights @ v).permute(0, 2, 3, 1, 4).flatten(3))


@pytest.fixture
def _described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_registry, "_FAMILIES", dict(_registry._FAMILIES))
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(r"### An attention of one's own.*?```python\n(.*?)```", text, re.DOTALL)
    assert found is not None
    exec(found[1], {"RowAttention": RowAttention})


@pytest.mark.usefixtures("_described")
def test_the_page_describes_an_attention() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(RowAttention(), RowAttention()).eval(), 2 * torch.randn(2, 3, 5, 12)
    with torch.no_grad(), record(model, keep_outputs=True) as seen:
        assert torch.equal(model(x), model[1](model[0](x)))
    first: Any = model[0]
    q, k, _ = first.qkv(x).unflatten(-1, (3, 2, 6)).permute(3, 0, 4, 1, 2, 5)
    own = (q @ k.mT * 0.7).softmax(-1)  # (B, H, rows, columns, columns)
    expected = torch.zeros(2, 2, 3, 5)
    expected[:, :, 1] = own[:, :, 1, 4]
    torch.testing.assert_close(seen.attention(0, query=(1, 4)), expected.flatten(2))
    torch.testing.assert_close(seen.call(1).output(seen.attention(1)), seen.outputs["1"])
    assert seen.rollout((1, 4)).approximate is None
    assert bool((seen.rollout((1, 4)).weights.view(2, 3, 5)[:, [0, 2]] == 0).all())
    assert "Where rows looks" in explorer_page(seen, torch.rand(2, 3, 6, 10), names=["a", "b"], title="rows")
