"""Maps of torchvision's models, against the softmax inside of their own forward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.families.beacon import check_beacon
from vit_rpe.models.families.samples.of_torchvision import CASES, build, image
from vit_rpe.viz import Recording, record


def recorded(model: nn.Module, x: Tensor) -> Recording:
    with torch.no_grad():
        before = model(x)
        with record(model) as seen:
            after = model(x)
    assert torch.equal(before, after)
    return seen


def own_weights(case: str, x: Tensor, monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """What the layers' softmax gives, one a layer; of ``MultiheadAttention`` what it gives back when asked."""
    model, found = build(case), []
    if case == "vit":
        for module in model.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.register_forward_pre_hook(
                    lambda _, args, kwargs: (args, {"need_weights": True, "average_attn_weights": False}),
                    with_kwargs=True,
                )
                module.register_forward_hook(lambda _, __, output: found.append(output[1]))
    else:
        softmax = F.softmax

        def kept(*args: Any, **kwargs: Any) -> Tensor:
            found.append(softmax(*args, **kwargs))
            return found[-1]

        monkeypatch.setattr(F, "softmax", kept)
    with torch.no_grad():
        model(x)
    monkeypatch.undo()
    return found


@pytest.mark.parametrize("case", CASES)
def test_maps_are_the_familys_own(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = image(case)
    own = own_weights(case, x, monkeypatch)
    seen = recorded(build(case), x)
    assert len(own) == len(seen) >= 2
    for layer, weights in enumerate(own):
        found = seen.attention(layer)
        torch.testing.assert_close(found, weights.reshape(found.shape), rtol=1e-5, atol=1e-6)
        row = seen.attention(layer, query=(1, 2))
        assert row.shape[-1] == seen.map_grid(layer).num_tokens
        for maps in (seen.content, seen.position):
            alone = maps(layer)
            torch.testing.assert_close(alone.sum(-1), torch.ones(alone.shape[:-1]))


@pytest.mark.parametrize("case", [case for case in CASES if case != "maxvit"])
def test_a_beacon_is_seen_where_it_is(case: str) -> None:
    check_beacon(build(case), image(case), lambda model, x: model(x))


def test_windows_and_grids_of_maxvit() -> None:
    seen = recorded(build("maxvit"), image("maxvit"))
    assert [sight.image for sight in seen.sights.values() if sight] == [(12, 12), (12, 12), (6, 6), (6, 6)]
    window, grid = ((seen.attention(layer, query=(4, 7))[0, 0] > 0).reshape(12, 12).nonzero() for layer in (0, 1))
    assert window.tolist() == [[i, j] for i in (3, 4, 5) for j in (6, 7, 8)]
    assert grid.tolist() == [[i, j] for i in (0, 4, 8) for j in (3, 7, 11)]


def test_what_multihead_attention_does_not_tell() -> None:
    layer = nn.TransformerEncoderLayer(12, 3, 24)
    with pytest.raises(ValueError, match="MultiheadAttention with the batch second"), record(layer):
        pass
