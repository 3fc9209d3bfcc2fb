"""Causality, padding, windows, heads and lengths of the sequence model, for every way it can know position."""

from __future__ import annotations

import pytest
import timm
import torch

import vit_rpe  # noqa: F401  (registers the models)
from tests.sequence.build import DEPTH, LENGTH, POSITIONS, VOCABULARY, build, tokens


def changed(ids: torch.Tensor, place: int) -> torch.Tensor:
    other = ids.clone()
    other[:, place] = (other[:, place] + 1) % VOCABULARY
    return other


@pytest.mark.parametrize("position", POSITIONS)
def test_later_tokens_change_nothing_before_them(position: str) -> None:
    model = build(position, head="lm", causal=True)
    ids = tokens(2, 7)
    before, after = model(ids), model(changed(ids, 4))
    torch.testing.assert_close(after[:, :4], before[:, :4])
    assert (after[:, 4:] != before[:, 4:]).any(-1).all()
    torch.testing.assert_close(model(ids[:, :5]), before[:, :5])


@pytest.mark.parametrize("pool", ["avg", "max", "last", "token"])
@pytest.mark.parametrize("position", POSITIONS)
def test_padding(position: str, pool: str) -> None:
    model = build(position, num_classes=5, pool=pool, class_token=pool == "token")
    lengths, ids = (3, 7, 1), tokens(3, 7)
    visible = torch.arange(7) < torch.tensor(lengths)[:, None]
    together = model(ids, visible)
    alone = torch.cat([model(ids[row : row + 1, :length]) for row, length in enumerate(lengths)])
    torch.testing.assert_close(together, alone)


def test_padding_of_every_token_is_finite() -> None:
    for pool in ("avg", "max", "last"):
        model = build("bias", num_classes=5, pool=pool)
        ids, visible = tokens(2, 4), torch.zeros(2, 4, dtype=torch.bool)
        logits = model(ids, visible)
        torch.testing.assert_close(logits, model.head.bias.expand(2, 5))
        logits.sum().backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("position", POSITIONS)
def test_window(position: str, causal: bool) -> None:
    """Through DEPTH layers of radius r a token reaches DEPTH * r places, and no farther."""
    model = build(position, head="token", num_classes=4, window=1, causal=causal)
    ids, place = tokens(2, 9), 4
    moved = (model(changed(ids, place)) != model(ids)).any(-1).any(0)
    expected = [place <= i <= place + DEPTH if causal else abs(i - place) <= DEPTH for i in range(9)]
    assert moved.tolist() == expected


def test_ways_out() -> None:
    ids = tokens(2, 6)
    assert build("bias", num_classes=5)(ids).shape == (2, 5)
    assert build("bias", head="token", num_classes=4)(ids).shape == (2, 6, 4)
    assert build("bias", head="token", num_classes=4, class_token=True)(ids).shape == (2, 6, 4)
    assert build("bias", head="lm")(ids).shape == (2, 6, VOCABULARY)
    assert build("bias", num_classes=0)(ids).shape == (2, 24)
    assert build("bias", in_features=3, num_classes=5)(torch.randn(2, 6, 3).double()).shape == (2, 5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocab_size": None}, "give vocab_size or in_features"),
        ({"in_features": 3, "vocab_size": 4}, "give vocab_size or in_features"),
        ({"in_features": 3, "head": "lm"}, "needs vocab_size"),
        ({"head": "lm", "num_classes": 4}, "one output a token"),
        ({"head": "langage"}, "unknown head"),
        ({"pool": "mean"}, "unknown pool"),
        ({"pool": "token"}, "class_token=True"),
        ({"class_token": True, "causal": True}, "causal=False"),
        ({"pos_embed": "learnt"}, "did you mean 'learned'"),
        ({"rpe": "t6"}, "did you mean 't5'"),
    ],
)
def test_refused_options(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build("none", **options)


def test_refused_inputs() -> None:
    with pytest.raises(ValueError, match="takes token ids"):
        build("bias")(torch.randn(2, 6, 3))
    with pytest.raises(ValueError, match="takes vectors"):
        build("bias", in_features=3)(tokens(2, 6))
    with pytest.raises(ValueError, match="key_visible"):
        build("bias")(tokens(2, 6), torch.ones(2, 5, dtype=torch.bool))


@pytest.mark.parametrize("position", POSITIONS)
def test_set_length(position: str) -> None:
    model = build(position, head="lm", causal=True)
    model.set_length(2 * LENGTH)
    assert model.length == 2 * LENGTH
    assert model(tokens(2, 2 * LENGTH)).isfinite().all()


def test_gradient_checkpointing_changes_nothing() -> None:
    model = build("bias", num_classes=5).train()
    ids, visible = tokens(2, 6), torch.arange(6).expand(2, 6) < 4
    gradients = []
    for enabled in (False, True):
        model.set_grad_checkpointing(enabled)
        gradients.append(torch.autograd.grad(model(ids, visible).square().sum(), list(model.parameters())))
    for plain, recomputed in zip(*gradients, strict=True):
        torch.testing.assert_close(recomputed, plain)


def test_timm_knows_the_models() -> None:
    names = timm.list_models(module="rpe_sequence")
    assert "rpe_sequence_nano" in names
    assert not set(names) & set(timm.list_models("vit_rpe_*"))
    model = timm.create_model("rpe_sequence_nano", vocab_size=7, length=11, head="lm", causal=True, rpe="t5")
    assert model(torch.randint(7, (2, 5))).shape == (2, 5, 7)
    assert "blocks.0.attn.rpe.table_0" in model.no_weight_decay()
    with pytest.raises(ValueError, match="no published weights"):
        timm.create_model("rpe_sequence_nano", pretrained=True, vocab_size=7)
