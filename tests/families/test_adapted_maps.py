"""Maps of models with adapters around their layers: those of the adapted model, wherever its own forward calls them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from tests.families.adapters import Beside, Passing, Telling, layers_of, wrap
from vit_rpe.models.families.samples import ROWS, sample_of
from vit_rpe.viz import record

SAMPLED = (
    *(("timm", name) for name in ("beit", "eva02-base", "swinv2", "mvitv2", "twins", "siglip", "efficientformerv2")),
    *(("transformers", name) for name in ("vit", "dinov3", "swinv2", "sam")),
    *(("torchvision", name) for name in ("vit", "swin", "swinv2")),
)
CASES = [(row.package, case) for row in ROWS for case in row.cases]


def cases() -> list[Any]:
    marks = {each: () if each in SAMPLED else pytest.mark.exhaustive for each in CASES}
    return [pytest.param(*each, id="-".join(each), marks=marks[each]) for each in CASES]


def reads_weights(module: nn.Module) -> bool:
    """Whether an attention takes the weights of its layers itself."""
    apart = getattr(module, "q_bias", None) is not None and not getattr(module, "qkv_bias_separate", True)
    return apart or type(module).__module__ in ("torchvision.models.swin_transformer", "torch.nn.modules.activation")


@pytest.mark.parametrize(("package", "case"), cases())
@pytest.mark.parametrize("where", ["inside", "everywhere", "around"])
@pytest.mark.filterwarnings("ignore:left out of the recording")  # XCiT's attention over channels
@torch.no_grad()
def test_maps_make_the_output(package: str, case: str, where: str) -> None:
    """Around the layers of attention what tells nothing of the layer inside; everywhere what tells weight and sizes;
    or something around attention itself."""
    model, x, options = sample_of(package, case)
    with record(model) as plain:
        model(x, **options)
    if where == "everywhere":
        wrap(model, layers_of(model), Telling)
    if where == "around":
        wrap(model, plain.names, Passing)
    for name in plain.names if where == "inside" else []:
        attention = model.get_submodule(name)
        wrap(attention, layers_of(attention), Telling if reads_weights(attention) else Beside)
    with record(model, keep_outputs=True) as seen:
        model(x, **options)
    assert seen.image == plain.image
    for layer, name in enumerate(seen.names):
        rebuilt: Any = seen.call(layer).output(seen.attention(layer))
        rebuilt = rebuilt[0] if isinstance(rebuilt, tuple) else rebuilt
        right = seen.outputs[name]
        assert_close(rebuilt, right, rtol=0, atol=1e-5 * float(right.abs().max()))
        assert seen.grids(layer) == plain.grids(layer)
