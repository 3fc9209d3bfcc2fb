"""Every encoding and kernel, differentiated and transformed every way: as the definition, or an error of torch's."""

from __future__ import annotations

from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from torch.testing import assert_close

from tests.attention.derivatives import OURS_REFUSE, TORCH_REFUSES, WAYS, can, layer_of, table
from vit_rpe.attention import KERNELS
from vit_rpe.encodings import list_encodings

# torch.func.jvp compiles its own rules with what torch itself calls deprecated
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:FutureWarning")

SAMPLED = ("bias", "irpe", "rope_mixed", "shaw")
"""One encoding a mechanism: a table over offsets, vectors on values by pair, learned angles, the fold."""

SLOW = ("compile", "compile(vmap(grad))")


def cells() -> list[Any]:
    found = []
    for way, name, impl in product(WAYS, list_encodings(), ["auto", *KERNELS]):
        sampled = (name, impl) == (SAMPLED[0], "auto") if way in SLOW else name in SAMPLED
        if impl != "eager":
            found.append(pytest.param(name, way, impl, marks=[] if sampled else pytest.mark.exhaustive))
    return found


@cache
def defined(name: str, way: str) -> Any:
    return WAYS[way](layer_of(name, "eager"))


@pytest.mark.parametrize(("name", "way", "impl"), cells())
def test_as_the_definition(name: str, way: str, impl: str) -> None:
    if not can(name, impl):
        return
    layer = layer_of(name, impl)
    if way in OURS_REFUSE.get(impl, ()):
        with pytest.raises(ValueError, match=r"FlexAttention .*on the CPU"):
            WAYS[way](layer)
        return
    if name in TORCH_REFUSES.get((way, impl), ()):
        with pytest.raises(RuntimeError, match="is not implemented"):
            WAYS[way](layer)
        return
    assert_close(WAYS[way](layer), defined(name, way), rtol=1e-9, atol=1e-9)


def test_the_page_says_what_holds() -> None:
    assert table() in (Path(__file__).parents[2] / "docs" / "design.md").read_text()
