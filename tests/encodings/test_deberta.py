"""deberta: log buckets, both directions on three tokens by hand, the scale, what is created and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tests.encodings.build import build
from vit_rpe.attention import attention_weights
from vit_rpe.encodings import create_encoding
from vit_rpe.encodings.deberta import log_bucket, row_of
from vit_rpe.position.geometry import TokenGrid

H, D = 2, 4


def test_log_buckets_of_the_published_setting() -> None:
    buckets = {0: 0, 1: 1, 128: 128, 129: 129, 130: 130, 200: 169, 256: 192, 300: 207, 400: 233, 511: 255}
    offsets = torch.tensor(list(buckets))
    assert log_bucket(offsets, 256, 512).tolist() == list(buckets.values())
    assert log_bucket(-offsets, 256, 512).tolist() == [-bucket for bucket in buckets.values()]


def test_rows_saturate() -> None:
    offsets = torch.tensor([-100_000, -511, 0, 511, 100_000])
    assert row_of(offsets, span=256, max_distance=512).tolist() == [0, 1, 256, 511, 511]


@pytest.mark.parametrize("directions", [("c2p",), ("p2c",), ("p2c", "c2p")])
def test_three_tokens_by_hand(directions: tuple[str, ...]) -> None:
    """The position-to-content score of (i, j) is Q_r[b(i-j)] . k_j: same offset as the other term, other token."""
    spec = {"span": 2, "max_distance": None, "directions": directions}
    encoding = create_encoding({"name": "deberta", **spec}, 1, D, TokenGrid((3,)), dtype=torch.float64)
    for parameter in encoding.parameters():
        torch.nn.init.normal_(parameter)
    q, k = torch.randn(2, 3, D, dtype=torch.float64).unbind(0)
    logits = torch.zeros(3, 3, dtype=torch.float64)
    for i in range(3):
        for j in range(3):
            row = encoding.embed[{-2: 0, -1: 1, 0: 2, 1: 3, 2: 3}[i - j]]
            logits[i, j] = q[i] @ k[j]
            if "c2p" in directions:
                logits[i, j] += q[i] @ (encoding.key_proj.weight @ row)
            if "p2c" in directions:
                logits[i, j] += k[j] @ (encoding.query_proj.weight @ row + encoding.query_proj.bias)
    logits = logits / math.sqrt(D * (1 + len(directions)))
    terms = encoding(TokenGrid((3,)), TokenGrid((3,)))
    weights = attention_weights(q[None, None], k[None, None], terms, scale=D**-0.5)
    torch.testing.assert_close(weights[0, 0], logits.softmax(-1))


def test_parameters_follow_the_directions() -> None:
    names = {
        directions: [
            name for name, _ in build("deberta", TokenGrid((2, 3)), {"directions": directions}).named_parameters()
        ]
        for directions in (("c2p",), ("p2c",))
    }
    assert names[("c2p",)] == ["embed", "key_proj.weight"]
    assert names[("p2c",)] == ["embed", "query_proj.weight", "query_proj.bias"]


def test_each_axis_has_its_own_rows_and_only_matrices_are_decayed() -> None:
    encoding = build("deberta", TokenGrid((2, 3, 4)), {"span": 4, "max_distance": 7})
    assert encoding.embed.shape[0] == 3 * 8
    assert encoding.no_weight_decay() == {"embed", "query_proj.bias"}


def test_only_rows_that_occur_are_projected() -> None:
    encoding = create_encoding("deberta", H, D, TokenGrid((2, 3)))
    terms = encoding(TokenGrid((4, 5)), TokenGrid((4, 5)))
    assert [part.table.shape[1] for part in (*terms.on_query, *terms.on_key)] == [7, 9, 7, 9]
    long = create_encoding({"name": "deberta", "span": 2, "max_distance": 5}, H, D, TokenGrid((40,)))
    assert long(TokenGrid((40,)), TokenGrid((40,))).on_query[0].table.shape[1] == 11


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"directions": ("c2p", "p2p")}, r"'p2p' \(did you mean 'p2c'\?\)"),
        ({"directions": ()}, "directions must name"),
        ({"directions": ("c2p", "c2p")}, "directions must name"),
        ({"directions": "c2p"}, "must be a tuple"),
        ({"span": 0, "max_distance": None}, "span must be at least 1"),
        ({"span": 1}, "and 2 for log buckets"),
        ({"span": 256, "max_distance": 129}, "at least 130, got 129"),
    ],
)
def test_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create_encoding({"name": "deberta", **options}, H, D, TokenGrid((3,)))
    with pytest.raises(ValueError, match="changes the attention"):
        create_encoding("deberta", H, D, TokenGrid((3,))).zero_()
