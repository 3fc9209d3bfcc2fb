"""Models whose layers are wrapped, before or after an encoding of ours is put into them, in place."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn

import vit_rpe
from tests.exchange.test_replace import ONE_EACH, replaced
from tests.families.adapters import CALLED, WRAPPERS, Beside, layers_of, merge, wrap
from vit_rpe.models.exchange.in_place.replace import positioned_layers
from vit_rpe.models.families.samples.of_timm import CASES, OTHERS, build, image, sample

TAKEN = (*CASES, "hiera")
"""Models that take an encoding."""
SAMPLED = (*ONE_EACH, "maxvit-mlp", "relpos-rpn", "levit-conv", "efficientvit", "efficientformerv2", "hiera")


READING = ("swinv2", "swinv2-square", "swinv2-pretrained", "eva02", "dinov3-square")
"""Models of timm whose own forward takes the weight of a layer, and leaves out what is put around it."""


def some(cases: Any, sampled: Any) -> list[Any]:
    return [pytest.param(case, marks=() if case in sampled else pytest.mark.exhaustive) for case in cases]


def given(case: str) -> tuple[nn.Module, Tensor]:
    if case in OTHERS:
        torch.manual_seed(0)
        model, x = sample(case)
        return model.double(), x.double()
    return build(case).double(), image(case).double()


def position(case: str) -> Any:
    """The encoding that a model keeps, or a new one where it has none."""
    return "bias" if case == "hiera" else "keep"


def attentions(model: nn.Module, case: str) -> list[str]:
    return list(positioned_layers(replaced(model, position(case))))


def test_models_that_read_weights_are_known() -> None:
    read = [case for case in CASES if any(getattr(part, "q_bias", None) is not None for part in build(case).modules())]
    assert tuple(read) == READING


def adapted_layers(model: nn.Module, paths: list[str]) -> list[str]:
    return [f"{path}.{name}" for path in paths for name in layers_of(model.get_submodule(path))]


def check(ours: Any, expected: Any, x: Tensor) -> None:
    """Equal to a model with merged weights, and every adapter learns."""
    found, right = ours.forward_features(x), expected.forward_features(x)
    largest = float(right.detach().abs().max())
    torch.testing.assert_close(found, right, rtol=0, atol=3e-7 * largest)
    adapters = {name: module for name, module in ours.named_modules() if isinstance(module, Beside)}
    assert adapters
    found.square().sum().backward()
    for name, adapter in adapters.items():
        for own, parameter in adapter.side.named_parameters():
            # the bias of keys moves all logits of a query alike, where nothing normalises them
            assert parameter.grad is not None, name
            assert own == "bias" or bool(parameter.grad.abs().sum() > 0), name


@pytest.mark.parametrize("case", some(TAKEN, SAMPLED))
def test_adapters_put_on_before(case: str) -> None:
    theirs, x = given(case)
    names = adapted_layers(theirs, attentions(theirs, case))
    adapted = copy.deepcopy(theirs)
    wrap(adapted, names, Beside)
    merge(theirs, adapted, zip(names, names, strict=True))
    ours = replaced(adapted, position(case))
    if case not in READING:
        torch.testing.assert_close(adapted(x), theirs(x))
    check(ours, theirs if position(case) == "keep" else replaced(theirs, "none"), x)
    if position(case) == "keep":
        ours.load_state_dict(adapted.state_dict())


@pytest.mark.parametrize("case", some(TAKEN, SAMPLED))
def test_adapters_put_on_after(case: str) -> None:
    theirs, x = given(case)
    ours = replaced(theirs, position(case))
    paths = list(positioned_layers(ours))
    before, names = adapted_layers(theirs, paths), adapted_layers(ours, paths)
    kept = [name for name in names if name in before]
    network = [name for name in before if name not in kept], [name for name in names if name not in kept]
    wrap(ours, names, Beside)
    same = replaced(theirs, position(case)) if position(case) != "keep" else theirs
    merge(same, ours, [(name, name) for name in kept])
    merge(same, ours, zip(*network, strict=True))
    check(ours, same, x)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(
    ("case", "kind"),
    [
        pytest.param(
            case, kind, marks=() if case in ("swin", "swinv2", "swinv2_cr", "mvitv2") else pytest.mark.exhaustive
        )
        for kind in WRAPPERS
        for case in CASES
        if not (kind in CALLED and case in READING)  # no original to compare with: as the two tests above
    ],
)
def test_whatever_stands_in_place_of_a_layer(case: str, kind: str) -> None:
    theirs, x = given(case)
    wrap(theirs, adapted_layers(theirs, attentions(theirs, case)), WRAPPERS[kind])
    expected = theirs(x).detach()
    ours = vit_rpe.replace_attention(theirs)
    torch.testing.assert_close(ours(x), expected, rtol=0, atol=3e-7 * float(expected.abs().max()))
    ours(x).square().sum().backward()
    for path, layer in positioned_layers(ours).items():
        for name, parameter in layer.named_parameters():
            assert parameter.grad is not None, f"{path}.{name}"


@pytest.mark.parametrize("name", ["patch_embed.proj", "blocks.0.attn.qkv", "blocks.0.attn.proj", "blocks.0.mlp.fc1"])
def test_add_rpe_keeps_wrapped_layers(name: str) -> None:
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=1).eval()
    x = torch.randn(1, 3, 32, 32)
    model.set_submodule(name, Beside(model.get_submodule(name)))
    expected = model(x)
    vit_rpe.add_rpe(model, "bias")
    torch.testing.assert_close(model(x), expected)


def test_our_own_patch_embedding_may_be_wrapped() -> None:
    torch.manual_seed(0)
    model = vit_rpe.VisionTransformer(img_size=16, patch_size=8, embed_dim=16, depth=1, num_heads=2).eval()
    same, x = copy.deepcopy(model), torch.randn(1, 3, 16, 16)
    wrap(model, ["patch_embed.proj"], Beside)
    merge(same, model, [("patch_embed.proj", "patch_embed.proj")])
    torch.testing.assert_close(model(x), same(x))
    model.reset_classifier(7)
    assert model(x).shape == (1, 7)
