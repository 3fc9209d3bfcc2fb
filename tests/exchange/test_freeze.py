"""``vit_rpe.freeze`` of changed models: the same function, from constants."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import timm
import torch

import vit_rpe
from tests.exchange.test_replace import replaced
from vit_rpe.encodings import FrozenPosition
from vit_rpe.models.exchange.in_place import positioned_layers
from vit_rpe.models.families.samples.of_timm import CASES, build, image

EVERY = pytest.mark.exhaustive
SPECS = ("bias", "rope", "cpb", "decomposed", ["bias", "rope_mixed"])


FIXED = [case for case in CASES if case != "gemma4"]
"""Models of a native size, which the cases have; Gemma 4 takes any, and is frozen for the largest."""


def randomized(model: Any) -> Any:
    """Positions that start at zero, moved away from it."""
    with torch.no_grad():
        for layer in positioned_layers(model).values():
            for parameter in layer.rpe.parameters():
                parameter.add_(torch.randn_like(parameter))
    return model


def same(model: Any, x: torch.Tensor) -> None:
    """Frozen, unfrozen and as it was."""
    with torch.no_grad():
        expected = model.forward_features(x)
        assert vit_rpe.freeze(model) is model
        torch.testing.assert_close(model.forward_features(x), expected, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(model.forward_features(x[:1]), expected[:1], rtol=1e-4, atol=1e-5)
        vit_rpe.unfreeze(model)
        torch.testing.assert_close(model.forward_features(x), expected, rtol=0, atol=0)


@pytest.mark.parametrize("case", FIXED)
def test_the_function_stays(case: str) -> None:
    same(replaced(build(case)), image(case))


@pytest.mark.parametrize(
    ("case", "rpe"),
    [
        pytest.param(case, rpe, marks=() if (place + other) % 10 == 0 else EVERY)
        for place, case in enumerate(FIXED)
        for other, rpe in enumerate(SPECS)
    ],
    ids=str,
)
def test_of_every_encoding(case: str, rpe: Any) -> None:
    same(randomized(replaced(build(case), rpe)), image(case))


@pytest.mark.parametrize("case", ["swin", "swinv2", "swinv2_cr"])
def test_shifted_windows_have_bias_and_mask_in_one(case: str) -> None:
    """The encoding is not asked, and the mask is not looked at."""
    ours = vit_rpe.freeze(replaced(build(case)))
    layers = list(positioned_layers(ours).values())
    shifted = [layer for layer in layers if any(layer.place.facts["shift"])]
    assert shifted
    for layer in layers:
        assert isinstance(layer.rpe, FrozenPosition)
        assert (layer.masked_bias is not None) == (layer in shifted)
    for layer in shifted:
        assert torch.isneginf(layer.masked_bias).any()
        layer.masked_bias.zero_()
    x = image(case)
    with torch.no_grad():
        assert not torch.allclose(ours(x), replaced(build(case))(x))
    assert not [name for name in ours.state_dict() if "masked_bias" in name]


def test_another_size_of_a_model_that_takes_any() -> None:
    """A mask that is made for every image is no constant; a window of the same size is."""
    name, small = CASES["swin-square"]
    model = timm.create_model(name, **small, strict_img_size=False).eval()
    ours = randomized(replaced(model))
    x = torch.randn(1, 3, 32, 96)
    with torch.no_grad():
        expected = ours(x)
        torch.testing.assert_close(vit_rpe.freeze(ours)(x), expected, rtol=1e-5, atol=1e-6)
    assert all(layer.masked_bias is None for layer in positioned_layers(ours).values())


@pytest.mark.parametrize("case", ["swin", "sam", "maxvit-table", "levit", "eva02"])
def test_what_would_make_constants_wrong_is_refused(case: str) -> None:
    ours = replaced(build(case), "bias")
    with pytest.raises(ValueError, match="call eval"):
        vit_rpe.freeze(ours.train())
    vit_rpe.freeze(ours.eval())
    with pytest.raises(ValueError, match=r"frozen: call unfreeze\(\) before train"):
        ours.train()
    ours.eval()
    with pytest.raises(ValueError, match=r"frozen: call unfreeze\(\) before another size"):
        ours.set_input_size((64, 96))
    with pytest.raises(ValueError, match=r"frozen: call unfreeze\(\) before loading weights"):
        ours.load_state_dict(ours.state_dict())
    with torch.no_grad():
        next(iter(positioned_layers(ours).values())).rpe.table.add_(1.0)
    with pytest.raises(ValueError, match="was changed while"):
        ours(image(case))


def test_sam_at_another_size_is_refused() -> None:
    ours = vit_rpe.freeze(replaced(timm.create_model("samvit_base_patch16", img_size=64, **SAM_ANY).eval()))
    with pytest.raises(ValueError, match=r"frozen for the grid \(4, 4\), got \(4, 6\)"):
        ours(torch.randn(1, 3, 64, 96))


SAM_ANY = {
    **{"embed_dim": 24, "depth": 2, "num_heads": 3, "global_attn_indexes": (1,), "neck_chans": 8},
    **{"window_size": 2},
}


def test_copies_dtypes_and_plain_models() -> None:
    ours = vit_rpe.freeze(randomized(replaced(build("swin"), "bias")))
    x = image("swin")
    with torch.no_grad():
        expected = ours(x)
        for other in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
            torch.testing.assert_close(other(x), expected)
        torch.testing.assert_close(ours.bfloat16()(x.bfloat16()).float(), expected, rtol=0.1, atol=0.1)
    plain = vit_rpe.add_rpe(timm.create_model("vit_tiny_patch16_224", depth=1, img_size=32), "bias").eval()
    own = timm.create_model("vit_rpe_nano_patch4_32").eval()
    for model in (randomized(plain), own):
        small = torch.randn(1, 3, 32, 32)
        with torch.no_grad():
            torch.testing.assert_close(vit_rpe.freeze(model)(small), vit_rpe.unfreeze(model)(small))


def test_without_position_of_ours_there_is_nothing_to_freeze() -> None:
    with pytest.raises(ValueError, match="resnet10t has no position of ours: call replace_attention"):
        vit_rpe.freeze(timm.create_model("resnet10t"))
    with pytest.raises(ValueError, match="'swin' has no position of ours"):
        vit_rpe.freeze("swin")  # type: ignore[arg-type]
