"""A compiled model is one graph, and other batch and image sizes do not compile it over and over."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch.testing import assert_close

from vit_rpe.encodings import encoding_class, list_encodings
from vit_rpe.models.vision.vit import VisionTransformer

SIZES = ((2, 8, 12), (3, 8, 12), (3, 12, 20), (4, 16, 24))
"""Images and their height and width: another batch, another grid, both."""

ALLOWED = {True: [1, 1, 1, 1], None: [1, 2, 3, 3]}
"""Programs after each of them: ``dynamic=True`` has one for all, the default one more for what changes first."""


def cases() -> list[Any]:
    names = [name for name in list_encodings() if 2 in encoding_class(name).card.axes]
    sampled = {("bias", True), ("rope_mixed", None)}
    return [
        pytest.param(name, dynamic, marks=[] if (name, dynamic) in sampled else pytest.mark.exhaustive)
        for name in names
        for dynamic in ALLOWED
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dynamic"), cases())
def test_one_graph_for_many_sizes(name: str, dynamic: bool | None) -> None:
    torch.compiler.reset()
    model = VisionTransformer(
        img_size=(8, 12), patch_size=4, num_classes=2, embed_dim=24, depth=1, num_heads=2, rpe=name, class_token=True,
        dynamic_img_size=True,
    ).eval()  # fmt: skip
    programs = CompileCounter()
    compiled = torch.compile(model, backend=programs, fullgraph=True, dynamic=dynamic)
    counts = []
    with torch.no_grad():
        for batch, height, width in SIZES:
            images = torch.randn(batch, 3, height, width)
            assert_close(compiled(images), model(images), rtol=1e-4, atol=1e-5)
            counts.append(programs.frame_count)
    assert all(count <= allowed for count, allowed in zip(counts, ALLOWED[dynamic], strict=True)), counts
