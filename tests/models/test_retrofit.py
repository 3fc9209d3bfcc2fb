"""add_rpe on timm's own models, starting at zero, freezing, optimiser groups and EMA."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable

import pytest
import timm
import torch
from timm.optim import create_optimizer_v2
from timm.utils import ModelEmaV3

import vit_rpe
from tests.models.tiny import additive_encodings, images, randomize, tiny


def plain(**kwargs) -> torch.nn.Module:
    args = {"img_size": (16, 24), "patch_size": 4, "embed_dim": 24, "depth": 2, "num_heads": 3, "num_classes": 5}
    return randomize(timm.create_model("vit_tiny_patch16_224", **{**args, **kwargs}))


@pytest.mark.parametrize("rpe", [*(name for name in additive_encodings() if name != "none"), ["bias", "shaw"]])
def test_an_additive_encoding_is_the_same_function_at_first(rpe) -> None:
    theirs, x = plain(), images((16, 24))
    expected = theirs(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(vit_rpe.from_timm(theirs, rpe=rpe)(x), expected, atol=1e-4, rtol=1e-4)
        added = vit_rpe.add_rpe(theirs, rpe=rpe)
    assert added is theirs
    torch.testing.assert_close(added(x), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("take_in", [vit_rpe.add_rpe, vit_rpe.from_timm, vit_rpe.replace_attention])
def test_what_is_put_into_a_model_has_its_mode(take_in: Callable[..., torch.nn.Module], training: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = take_in(plain().train(training), rpe={"name": "rope_normalized", "jitter": 1.5})
    assert {module.training for module in model.modules()} == {training}
    x = images((16, 24))
    assert torch.equal(model(x), model(x)) is not training


@pytest.mark.parametrize("rpe", ["rope", "alibi"])
def test_an_encoding_that_changes_the_function_says_so(rpe: str) -> None:
    with pytest.warns(UserWarning, match=f"'{rpe}' changes the attention from the start"):
        vit_rpe.from_timm(plain(), rpe=rpe)
    with pytest.warns(UserWarning, match=f"'{rpe}' changes the attention from the start"):
        vit_rpe.add_rpe(plain(), rpe=rpe)


def test_a_retrofitted_model_is_the_converted_one_and_stays_usable() -> None:
    theirs = vit_rpe.add_rpe(plain(dynamic_img_size=True), rpe="bias")
    randomize(theirs)
    ours = vit_rpe.from_timm(plain(dynamic_img_size=True), rpe="bias")
    ours.load_state_dict(theirs.state_dict())
    for size in ((16, 24), (24, 12)):
        x = images(size)
        torch.testing.assert_close(theirs(x), ours(x), atol=1e-5, rtol=1e-4)
    assert "blocks.0.attn.rpe.table" in theirs.no_weight_decay()
    copied = copy.deepcopy(theirs)
    copied.set_input_size((20, 8))
    ours.set_input_size((20, 8))
    x = images((20, 8))
    torch.testing.assert_close(copied(x), ours(x), atol=1e-5, rtol=1e-4)
    assert theirs.blocks[0].attn.rpe.table.shape == (3, 7, 11), "the original is untouched"


def test_add_rpe_refuses_what_it_cannot_do() -> None:
    with pytest.raises(ValueError, match="from_timm converts more kinds"):
        vit_rpe.add_rpe(timm.create_model("beit_base_patch16_224", depth=1, img_size=32), rpe="bias")
    with pytest.raises(ValueError, match="did you mean 'bias'"):
        vit_rpe.add_rpe(plain(), rpe="bais")
    with pytest.raises(ValueError, match="did you mean 'sdpa'"):
        vit_rpe.add_rpe(plain(), rpe="bias", attn_impl="sdpaa")
    with pytest.raises(ValueError, match="patch dropout"):
        vit_rpe.add_rpe(plain(patch_drop_rate=0.5), rpe="bias")


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("vit_relpos_base_patch16_rpn_224", "ResPostRelPosBlock"),
        ("vit_base_patch16_rpn_224", "ResPostBlock"),
        ("swin_tiny_patch4_window7_224", "only plain"),
        ("deit_tiny_distilled_patch16_224", "VisionTransformerDistilled"),
        ("eva02_enormous_patch14_clip_224", "EvaBlockPostNorm"),
    ],
)
def test_models_that_cannot_be_expressed_are_refused_by_name(name: str, part: str) -> None:
    with pytest.raises(ValueError, match=part) as caught:
        vit_rpe.from_timm(timm.create_model(name, device="meta", **({"depth": 2} if "swin" not in name else {})))
    assert name in str(caught.value)
    with pytest.raises(ValueError, match="did you mean 'vit_tiny_patch16_224'"):
        vit_rpe.from_timm("vit_tinny_patch16_224")


@pytest.mark.parametrize("rpe", ["bias", "cpb", "rope", "shaw", ["bias", "rope_mixed"]])
def test_freezing_keeps_the_function_and_guards_it(rpe) -> None:
    model = randomize(tiny(rpe=rpe, class_token=True, dynamic_img_size=True))
    x = images()
    expected, names = model(x), list(model.state_dict())
    model.freeze()
    torch.testing.assert_close(model(x), expected)
    assert list(model.state_dict()) == names
    torch.testing.assert_close(copy.deepcopy(model)(x), expected)
    for forbidden in (
        lambda: model.train(),
        lambda: model(images((12, 8))),
        lambda: model.load_state_dict(model.state_dict()),
    ):
        with pytest.raises(ValueError, match="frozen"):
            forbidden()
    table = next((p for key, p in model.named_parameters() if ".rpe." in key), None)
    if table is not None:
        with torch.no_grad():
            table.add_(1)
        with pytest.raises(ValueError, match="was changed"):
            model(x)
    model.unfreeze()
    model.train()
    model.set_input_size((12, 8))
    assert model.eval()(images((12, 8))).isfinite().all()
    with pytest.raises(ValueError, match="evaluation mode"):
        model.train().freeze()


def test_layer_decay_and_weight_decay_treat_encodings_as_meant() -> None:
    model = tiny(rpe="bias", class_token=True)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1.0, weight_decay=0.1, layer_decay=0.5)
    tables = [block.attn.rpe.table for block in model.blocks]
    scales = []
    for table, block in zip(tables, model.blocks, strict=True):
        own = [g for g in optimizer.param_groups if any(p is table for p in g["params"])]
        same = [g for g in optimizer.param_groups if any(p is block.attn.qkv.weight for p in g["params"])]
        assert own[0]["weight_decay"] == 0
        assert own[0]["lr_scale"] == same[0]["lr_scale"]
        scales.append(own[0]["lr_scale"])
    assert scales[0] < scales[1]


def test_ema_is_the_model_of_its_weights() -> None:
    model = randomize(tiny(rpe="bias"))
    ema = ModelEmaV3(model, decay=0.5)
    x = images()
    before = ema.module(x)
    randomize(model)
    ema.update(model)
    fresh = tiny(rpe="bias").eval()
    fresh.load_state_dict(ema.module.state_dict())
    torch.testing.assert_close(ema.module(x), fresh(x))
    assert (ema.module(x) - before).abs().max() > 1e-3


def test_a_shared_encoding_can_be_replaced_by_one_that_has_nothing_to_share() -> None:
    theirs = timm.create_model("vit_srelpos_small_patch16_224", img_size=(32, 48), depth=1, embed_dim=24, num_heads=3)
    with pytest.warns(UserWarning, match="left out"):
        vit_rpe.from_timm(theirs, rpe="none")
    assert tiny("vit_rpe_srelpos_small_patch16_224", rpe="rope")(images()).shape == (3, 5)
    assert "rpe.fc1.weight" in tiny("vit_rpe_srelpos_small_patch16_224").state_dict()
