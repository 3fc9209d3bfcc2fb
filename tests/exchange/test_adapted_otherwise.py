"""Models changed by their users before an encoding is put in: quantised, frozen, tied, hooked, inside of others."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune
from torch.testing import assert_close

import vit_rpe
from tests.exchange.test_adapted import some
from tests.exchange.test_replace import replaced
from tests.families.adapters import Beside, Doubled, Passing, wrap
from vit_rpe.models.exchange.in_place.replace import positioned_layers
from vit_rpe.models.families.samples.of_timm import CASES, build, image
from vit_rpe.viz import record

PLAIN = ("vit_tiny_patch16_224", {"img_size": (32, 48), "depth": 2, "embed_dim": 24, "num_heads": 3, "num_classes": 5})


def plain_vit() -> tuple[Any, Tensor]:
    return timm.create_model(PLAIN[0], **PLAIN[1]).eval(), torch.randn(2, 3, 32, 48)


def quantised(model: nn.Module) -> Any:
    return torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)


@pytest.mark.filterwarnings("ignore:.*quantiz.*")
@pytest.mark.parametrize("case", some(CASES, ("swin", "swinv2", "swinv2_cr", "sam", "maxvit-mlp", "relpos-cls")))
@torch.no_grad()
def test_dynamic_quantisation(case: str) -> None:
    """Before and after; the numbers are those of the quantised layers, also in the networks of positions."""
    theirs, x = build(case), image(case)
    after = quantised(replaced(theirs))
    left = [name for name, module in after.named_modules() if type(module) is nn.Linear]
    assert not left
    before = vit_rpe.replace_attention(quantised(theirs))
    assert_close(before(x), after(x), rtol=1e-4, atol=1e-4)
    exact = theirs(x)
    assert not torch.equal(after(x), exact)
    assert (after(x) - exact).norm() < 0.2 * exact.norm()
    vit_rpe.freeze(before)
    assert_close(before(x), after(x), rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore:.*quantiz.*")
@torch.no_grad()
def test_a_quantised_plain_model_takes_an_encoding_and_another_head() -> None:
    model, x = plain_vit()
    small = quantised(model)
    expected = small(x)
    assert_close(vit_rpe.add_rpe(small, [{"name": "cpb", "mode": "log"}, "bias"])(x), expected)
    ours = quantised(vit_rpe.VisionTransformer(img_size=(32, 48), embed_dim=24, depth=1, num_heads=3, rpe="cpb").eval())
    expected = ours(x)
    ours.freeze()
    assert_close(ours(x), expected)
    ours.unfreeze()
    ours.set_input_size((48, 32))
    ours.reset_classifier(3)
    assert ours(torch.randn(2, 3, 48, 32)).shape == (2, 3)


class Packed(nn.Module):
    """Weights as libraries for 4 bits keep them, in numbers that do not compute."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.hidden = (layer,)
        self.weight = nn.Parameter(torch.zeros(7, 1, dtype=torch.uint8), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.hidden[0](x)
        return out


def test_packed_weights_tell_no_dtype() -> None:
    model, x = plain_vit()
    wrap(model, [f"blocks.{index}.attn.{name}" for index in range(2) for name in ("qkv", "proj")], Packed)
    expected = model(x)
    vit_rpe.add_rpe(model, "fire")
    wrap(model, ["blocks.0.attn.rpe.fc1"], Packed)
    assert_close(model(x), expected)
    model.set_input_size((48, 32))
    assert model(torch.randn(2, 3, 48, 32)).isfinite().all()
    swin, y = build("swin"), image("swin")
    wrap(swin, ["layers.0.blocks.0.attn.qkv"], Packed)
    vit_rpe.replace_attention(swin, "bias")
    assert swin(y).isfinite().all()


def test_a_model_with_frozen_weights_keeps_a_frozen_position() -> None:
    for case in ("swin", "swinv2", "sam", "relpos-table"):
        theirs = build(case)
        theirs.requires_grad_(False)
        wrap(theirs, [name for name, module in theirs.named_modules() if name.endswith("attn.proj")], Beside)
        with torch.no_grad():
            ours = vit_rpe.replace_attention(theirs)
        learning = [name for name, own in ours.named_parameters() if own.requires_grad]
        assert all(".side." in name or ".layer." in name for name in learning) or not learning
        assert not [name for name in learning if ".rpe." in name]
    with torch.no_grad():
        ours = vit_rpe.replace_attention(build("swin"))
    assert all(own.requires_grad for own in ours.parameters())


def test_hooks_on_an_attention_stay() -> None:
    theirs, x = build("swin"), image("swin")
    attention, seen = theirs.get_submodule("layers.0.blocks.0.attn"), []
    handle = attention.register_forward_hook(lambda module, inputs, output: 3 * output)
    attention.register_forward_pre_hook(lambda module, inputs, kwargs: seen.append(kwargs), with_kwargs=True)
    expected = theirs(x)
    ours = replaced(theirs)
    assert_close(ours(x), expected, rtol=1e-4, atol=1e-5)
    vit_rpe.replace_attention(theirs)
    assert_close(theirs(x), expected, rtol=1e-4, atol=1e-5)
    assert len(seen) == 3
    handle.remove()
    assert not torch.allclose(theirs(x), expected)


@pytest.mark.parametrize("case", ["swin", "vit"])
def test_what_would_be_lost_is_refused(case: str) -> None:
    model: Any = build("swin") if case == "swin" else plain_vit()[0]
    path = "layers.0.blocks.0.attn" if case == "swin" else "blocks.0.attn"
    attention = model.get_submodule(path)
    attention.forward = attention.forward
    names = list(model.state_dict())
    with pytest.raises(ValueError, match="its forward is replaced"):
        vit_rpe.replace_attention(model, "bias")
    assert list(model.state_dict()) == names


@pytest.mark.parametrize("kind", ["pruned", "parametrised"])
def test_a_computed_table_is_refused_and_recorded(kind: str) -> None:
    theirs, x = build("swin"), image("swin")
    attention, name = theirs.get_submodule("layers.0.blocks.0.attn"), "relative_position_bias_table"
    if kind == "pruned":
        prune.random_unstructured(attention, name, 0.5)
    else:
        parametrize.register_parametrization(attention, name, Doubled())
    with pytest.raises(ValueError, match="a parameter of its own is computed from others"):
        vit_rpe.replace_attention(theirs)
    with record(theirs, keep_outputs=True) as seen:
        theirs(x)
    assert_close(seen.call(0).output(seen.attention(0)), seen.outputs[seen.names[0]].detach(), rtol=1e-4, atol=1e-5)
    if kind == "pruned":
        prune.remove(attention, name)
    else:
        parametrize.remove_parametrizations(attention, name)
    expected = theirs(x)
    assert_close(vit_rpe.replace_attention(theirs)(x), expected, rtol=1e-4, atol=1e-5)


def test_a_network_that_is_wrapped_as_a_whole_is_refused() -> None:
    def another(network: Any) -> nn.Module:
        return nn.Sequential(network[0], nn.GELU(), network[2])

    for around in (nn.Sequential, another):
        theirs = build("swinv2")
        wrap(theirs, ["layers.0.blocks.0.attn.cpb_mlp"], around)
        with pytest.raises(ValueError, match="put adapters and hooks around its layers '0' and '2'"):
            vit_rpe.replace_attention(theirs)
    hooked = build("swinv2_cr")
    hooked.get_submodule("stages.0.blocks.0.attn.meta_mlp").register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="nothing around it"):
        vit_rpe.replace_attention(hooked)


def test_tied_positions_stay_tied() -> None:
    theirs, x = build("swin"), image("swin")
    first, second = (theirs.get_submodule(f"layers.0.blocks.{index}.attn") for index in range(2))
    second.relative_position_bias_table = first.relative_position_bias_table
    expected, number = theirs(x), len(list(theirs.parameters()))
    ours = vit_rpe.replace_attention(theirs)
    assert_close(ours(x), expected, rtol=1e-4, atol=1e-5)
    assert len(list(ours.parameters())) == number
    ours.set_input_size(img_size=(96, 64), window_size=(4, 3))
    assert len(list(ours.parameters())) == number


def test_one_attention_at_several_places_is_replaced_at_all() -> None:
    theirs, x = build("swin"), image("swin")
    blocks = theirs.get_submodule("layers.1.blocks")
    blocks[1].attn = blocks[0].attn
    expected, number = theirs(x), len(list(theirs.parameters()))
    ours = vit_rpe.replace_attention(theirs)
    assert len([name for name in ours.state_dict() if name.endswith("relative_position_bias_table")]) == 0
    assert_close(ours(x), expected, rtol=1e-4, atol=1e-5)
    assert len(list(ours.parameters())) == number


def test_another_size_through_a_wrapper() -> None:
    """Adapter libraries put something around the whole model, which looks names up inside."""
    x = torch.randn(2, 3, 96, 64)
    around, alone = vit_rpe.replace_attention(Passing(build("swinv2_cr"))), replaced(build("swinv2_cr"))
    alone.load_state_dict(around.inside.state_dict())
    for model in (around, alone):
        model.set_input_size(img_size=(96, 64), window_size=(4, 3))
    assert_close(around(x), alone(x))
    assert_close(copy.deepcopy(around)(x), alone(x))


@pytest.mark.parametrize("case", some(CASES, ("swin", "sam", "maxvit-table", "coatnet", "tiny_vit")))
@torch.no_grad()
def test_something_around_an_attention_is_not_its_block(case: str) -> None:
    theirs, x = build(case), image(case)
    expected = theirs(x)
    wrap(theirs, list(positioned_layers(replaced(theirs))), Passing)
    found = vit_rpe.replace_attention(theirs)(x)
    assert_close(found, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()) + 1e-5)


def test_weight_decay_is_told_of_the_parameters_there_are() -> None:
    for model in (replaced(build("swinv2")), vit_rpe.add_rpe(plain_vit()[0], "fire")):
        paths = list(positioned_layers(model))
        before = model.no_weight_decay()
        wrap(model, [f"{path}.rpe.fc1" for path in paths], Beside)
        names = dict(model.named_parameters())
        expected = {f"{path}.rpe.fc1.{part}.bias" for path in paths for part in ("layer", "side")}
        assert model.no_weight_decay() - before == expected
        assert expected <= names.keys()


@pytest.mark.parametrize("kind", ["adapter", "pruned", "parametrised", "quantised"])
@pytest.mark.filterwarnings("ignore:.*quantiz.*")
def test_conversion_names_the_layer_that_is_no_longer_plain(kind: str) -> None:
    model, _ = plain_vit()
    layer = model.blocks[1].attn.proj
    if kind == "adapter":
        model.blocks[1].attn.proj = Beside(layer)
    elif kind == "pruned":
        prune.random_unstructured(layer, "weight", 0.5)
    elif kind == "parametrised":
        parametrize.register_parametrization(layer, "weight", Doubled())
    else:
        model.blocks[1].attn.proj = quantised(nn.Sequential(layer))[0]
    with pytest.raises(ValueError, match=r"blocks\.1\.attn\.proj is a .* whose weights are not those of a plain layer"):
        vit_rpe.from_timm(model)
    model.blocks[1].attn.proj, model.head = layer, nn.Sequential(model.head)
    if kind == "adapter":
        vit_rpe.from_timm(model, num_classes=3)
