"""Decoding with a key/value cache equals the full forward: every position, prompt length, chunk size, and beyond."""

from __future__ import annotations

import pytest
import torch

from tests.sequence.build import LENGTH, POSITIONS, build, tokens
from vit_rpe.encodings import encoding_class, list_encodings

DECODING = [
    position
    for position in POSITIONS
    if position not in list_encodings() or encoding_class(position).card.supports_kv_cache
]
CHUNKS = {"one-by-one": [1] * 7, "prompt-4": [4, 1, 1, 1], "uneven": [2, 3, 1, 2], "all": [8]}


def decode(model, ids, chunks, context=None):
    cache = model.new_cache(context)
    return torch.cat([model(part, cache=cache) for part in ids[:, : sum(chunks)].split(chunks, dim=1)], dim=1)


@pytest.mark.parametrize("chunks", CHUNKS)
@pytest.mark.parametrize("position", DECODING)
def test_within_the_native_length(position: str, chunks: str) -> None:
    model = build(position, head="lm", causal=True)
    ids = tokens(2, sum(CHUNKS[chunks]))
    torch.testing.assert_close(decode(model, ids, CHUNKS[chunks]), model(ids))


@pytest.mark.parametrize("position", [position for position in DECODING if position != "learned"])
def test_beyond_the_native_length(position: str) -> None:
    model = build(position, head="lm", causal=True)
    ids = tokens(2, LENGTH + 8)
    torch.testing.assert_close(
        decode(model, ids, [LENGTH - 1, 1, 1, 5, 2], 20), model(ids, context=20)[:, : LENGTH + 7 + 1]
    )


@pytest.mark.parametrize("position", ["bias", "rope", "sincos"])
def test_window_and_qk_norm(position: str) -> None:
    model = build(position, head="lm", causal=True, window=2, qk_norm=True)
    ids = tokens(3, 8)
    torch.testing.assert_close(decode(model, ids, [3, 1, 4]), model(ids))


def test_feature_vectors() -> None:
    model = build("alibi", in_features=5, head="token", num_classes=4, causal=True)
    vectors = torch.randn(2, 7, 5, dtype=torch.float64)
    torch.testing.assert_close(decode(model, vectors, [4, 3]), model(vectors))


@pytest.mark.parametrize("position", [name for name in POSITIONS if name not in DECODING])
def test_refusal_names_the_encoding(position: str) -> None:
    with pytest.raises(ValueError, match=f"rpe='{position}' cannot decode step by step"):
        build(position, head="lm", causal=True).new_cache()


def test_other_refusals() -> None:
    with pytest.raises(ValueError, match="causal=True"):
        build("bias", head="lm").new_cache()
    learned = build("learned", head="lm", causal=True)
    with pytest.raises(ValueError, match=f"knows the {LENGTH} positions .* got {LENGTH + 1} tokens"):
        decode(learned, tokens(1, LENGTH + 1), [LENGTH, 1], LENGTH + 1)
    model = build("bias", head="lm", causal=True)
    with pytest.raises(ValueError, match="do not fit the context limit of 4"):
        decode(model, tokens(1, 5), [3, 2], 4)
    with pytest.raises(ValueError, match="every token is visible"):
        model(tokens(1, 3), torch.ones(1, 3, dtype=torch.bool), cache=model.new_cache())


@pytest.mark.parametrize("position", ["t5", "rope", "fire"])
def test_greedy_generation_takes_the_most_likely_token(position: str) -> None:
    model = build(position, head="lm", causal=True)
    prompt, added = tokens(2, 4), LENGTH
    generated = model.generate(prompt, added, temperature=0)
    expected = prompt
    for _ in range(added):
        logits = model(expected, context=4 + added)
        expected = torch.cat([expected, logits[:, -1].argmax(-1, keepdim=True)], dim=1)
    assert torch.equal(generated, expected)


def test_sampling_obeys_its_generator_and_top_k() -> None:
    model = build("bias", head="lm", causal=True)
    prompt = tokens(5, 2)
    draws = [
        model.generate(prompt, 6, top_k=k, generator=torch.Generator().manual_seed(seed))
        for k, seed in ((None, 1), (None, 1), (None, 2), (1, 2))
    ]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert torch.equal(draws[3], model.generate(prompt, 6, temperature=0))
    with pytest.raises(ValueError, match="at least one token"):
        model.generate(prompt[:, :0], 3)
    with pytest.raises(ValueError, match="temperature"):
        model.generate(prompt, 3, temperature=-1)
    with pytest.raises(ValueError, match="head='token'"):
        build("bias", head="token", causal=True).generate(prompt, 3)
