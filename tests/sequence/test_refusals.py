"""Wrong input to a sequence model is refused with the value that was given."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.sequence.build import VOCABULARY, build, tokens
from vit_rpe.models import SequenceTransformer


@pytest.fixture(scope="module")
def model() -> SequenceTransformer:
    return build("t5", head="lm", causal=True)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.tensor([1, 2]), r"takes token ids .* shape \(2,\)"),
        (torch.rand(2, 4), r"int32 or int64, got torch.float32 of shape \(2, 4\)"),
    ],
)
def test_tokens(model: SequenceTransformer, x: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model(x)


@pytest.mark.parametrize("shape", [(2, 4, 5), (2, 3)])
def test_vectors(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"takes vectors \(batch, tokens, 3 features\)"):
        build("bias", in_features=3, num_classes=2)(torch.randn(*shape, dtype=torch.float64))


@pytest.mark.parametrize(
    ("prompt", "added", "message"),
    [
        (torch.tensor([[1, VOCABULARY]]), 2, f"must be 0 ... {VOCABULARY - 1}, got {VOCABULARY}"),
        (torch.tensor([[-3, 1]]), 2, "got -3"),
        (torch.rand(1, 3), 2, "int32 or int64, got torch.float32"),
        (tokens(1, 3), -1, "num_tokens must be an integer of at least 0, got -1"),
    ],
)
def test_prompts(model: SequenceTransformer, prompt: torch.Tensor, added: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model.generate(prompt, added)


@pytest.mark.parametrize(
    "options",
    [{"temperature": value} for value in (math.nan, math.inf, -0.5, True, "1")]
    + [{"top_k": value} for value in (0, 2.5, True, math.nan, "3")],
)
def test_options_of_generation(model: SequenceTransformer, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be"):
        model.generate(tokens(1, 3), 2, **options)


def test_caches(model: SequenceTransformer) -> None:
    cache = model.new_cache()
    model(tokens(2, 3), cache=cache)
    with pytest.raises(
        ValueError, match=r"holds \(batch, heads, head width\) \(2, 2, 12\), got tokens of \(3, 2, 12\)"
    ):
        model(tokens(3, 1), cache=cache)
    with pytest.raises(ValueError, match="context must be an integer of at least 1, got 0"):
        model.new_cache(0)


@pytest.mark.parametrize("make", [lambda: build("bias", vocab_size=0), lambda: build("bias", in_features=-1)])
def test_widths(make: Callable[[], SequenceTransformer]) -> None:
    with pytest.raises(ValueError, match="must be an integer of at least 1, got"):
        make()
