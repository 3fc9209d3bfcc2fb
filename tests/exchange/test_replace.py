"""``replace_attention``: timm's models with their own position, and with any other, in our attention."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import timm
import torch
from torch import nn

import vit_rpe
from tests.models.tiny import tiny
from vit_rpe.models.exchange.in_place.replace import positioned_layers
from vit_rpe.models.families.samples.of_timm import CASES, build, image

ONE_EACH = ("swin", "swinv2", "swinv2_cr", "sam", "maxvit-table", "coatnet", "mvitv2", "gcvit")
"""One case a family, for what does not depend on its options."""
DROP_IN = (*ONE_EACH, "efficientvit", "efficientformerv2")
ADDED = (
    *("bias", "bias_axial", "cpb", "shaw", "decomposed", "kerple", "t5", "fire", "deberta", "irpe"),
    *("rope", "rope_mixed", "rope_normalized", "alibi"),
)


def replaced(model: nn.Module, rpe: Any = "keep", **options: Any) -> Any:
    """A copy of the model with its attention replaced; what some encodings warn of is known here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return vit_rpe.replace_attention(copy.deepcopy(model), rpe, **options)


def step(model: Any, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_function_stays(case: str, dtype: torch.dtype) -> None:
    """In float64 only timm's own offsets for its networks are float32."""
    theirs, x = build(case).to(dtype), image(case).to(dtype)
    ours = replaced(theirs)
    with torch.no_grad():
        expected, found, without = (model.forward_features(x) for model in (theirs, ours, replaced(theirs, "none")))
    largest = float(expected.abs().max())
    assert float((expected - without).abs().max()) > 2e-4 * largest, "position must matter here"
    tolerance = 3e-6 if dtype == torch.float32 else 2e-8
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance * largest)


@pytest.mark.parametrize("case", CASES)
def test_gradients_stay(case: str) -> None:
    theirs, x = build(case).double(), image(case).double()
    ours = replaced(theirs)
    for model in (theirs, ours):
        model(x).square().sum().backward()
    expected = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        assert parameter.grad is not None, name
        if ".rpe." not in name:
            torch.testing.assert_close(parameter.grad, expected[name].grad, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("case", ONE_EACH)
@pytest.mark.parametrize("impl", ["eager", "sdpa"])
def test_every_kernel_says_the_same(case: str, impl: str) -> None:
    theirs, x = build(case), image(case)
    with torch.no_grad():
        torch.testing.assert_close(replaced(theirs, attn_impl=impl)(x), theirs(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_files_of_timm_load(case: str) -> None:
    """All names but those of position are kept, and a file of the original fills the replaced model strictly."""
    theirs = build(case)
    ours = replaced(build(case))
    assert not [key for key in ours.state_dict() if key not in theirs.state_dict() and ".rpe." not in key]
    ours.load_state_dict(theirs.state_dict())
    x = image(case)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-5)


def test_a_file_with_position_weights_warns_where_another_encoding_is() -> None:
    theirs = build("swin")
    ours = replaced(theirs, "alibi")
    with pytest.warns(UserWarning, match="left out: 'alibi' is in their place"):
        ours.load_state_dict(theirs.state_dict())


@pytest.mark.parametrize("case", DROP_IN)
@pytest.mark.parametrize("rpe", ADDED)
def test_any_encoding_drops_in(case: str, rpe: str) -> None:
    theirs, x = build(case), image(case)
    spec = {"name": "shaw", "value": False} if rpe == "shaw" and case.startswith("efficient") else rpe
    ours = replaced(theirs, spec)
    assert {layer.rpe.name for layer in positioned_layers(ours).values()} == {rpe}
    found = ours(x)
    assert torch.isfinite(found).all()
    if vit_rpe.encodings.encoding_class(rpe).card.additive and rpe != "alibi":
        torch.testing.assert_close(found, replaced(theirs, "none")(x), rtol=1e-4, atol=1e-5)
    found.square().sum().backward()
    assert all(parameter.grad is not None for parameter in ours.parameters())


@pytest.mark.parametrize("case", DROP_IN)
@pytest.mark.parametrize("rpe", ["keep", "bias", "rope", "cpb"])
def test_two_steps_of_training_resume_bit_for_bit(case: str, rpe: str) -> None:
    x = image(case)
    ours = replaced(build(case), rpe).train()
    optimizer = torch.optim.AdamW(ours.parameters(), lr=1e-3)
    torch.manual_seed(1)
    step(ours, optimizer, x)
    weights, state = copy.deepcopy(ours.state_dict()), copy.deepcopy(optimizer.state_dict())
    torch.manual_seed(2)
    step(ours, optimizer, x)
    again = replaced(build(case), rpe).train()
    again.load_state_dict(weights)
    other = torch.optim.AdamW(again.parameters(), lr=1e-3)
    other.load_state_dict(state)
    torch.manual_seed(2)
    step(again, other, x)
    for name, value in ours.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name


@pytest.mark.parametrize("case", ["swin", "swinv2", "swinv2-pretrained", "swinv2_cr", "maxvit-mlp"])
@pytest.mark.parametrize("rpe", ["keep", "bias", "rope", "alibi"])
def test_another_size(case: str, rpe: str) -> None:
    """Tables are resampled, networks are asked anew.

    A network that is kept is that of timm at any window, but for Swin V2 without a window of pre-training: there timm
    stretches the offsets of the new window over the old ones, here an offset keeps its value.
    """
    options: dict[str, Any] = {"img_size": (96, 64), "window_size": (4, 3)}
    if case == "maxvit-mlp":
        options = {"img_size": (96, 64), "window_size": (3, 4)}
    theirs, x = build(case), torch.randn(2, 3, 96, 64)
    ours = replaced(theirs, rpe)
    ours.set_input_size(**options)
    assert torch.isfinite(ours(x)).all()
    if rpe == "keep" and case not in ("swin", "swinv2"):
        theirs.set_input_size(**options)
        with torch.no_grad():
            torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rpe", ["keep", "bias", "rope"])
def test_segment_anything_at_another_size(rpe: str) -> None:
    """timm has no ``set_input_size`` there; ours resizes the global layers."""
    ours = replaced(build("sam"), rpe)
    ours.set_input_size(img_size=(48, 96))
    assert [layer.rpe.grid.size for layer in positioned_layers(ours).values()] == [(3, 3), (3, 6)]
    assert torch.isfinite(ours(torch.randn(1, 3, 48, 96))).all()


@pytest.mark.parametrize("rpe", ["keep", "bias", "rope"])
def test_efficientvit_at_another_size(rpe: str) -> None:
    """The shorter side decides on the windows."""
    ours = replaced(build("efficientvit"), rpe)
    ours.set_input_size(img_size=(128, 96))
    assert [layer.rpe.grid.size for layer in positioned_layers(ours).values()] == [(6, 6), (3, 3), (2, 2)]
    assert torch.isfinite(ours(torch.randn(1, 3, 128, 96))).all()


@pytest.mark.parametrize("case", ["levit", "efficientformer", "efficientformerv2", "tiny_vit"])
def test_one_size_only(case: str) -> None:
    with pytest.raises(ValueError, match="has no set_input_size: create it at another size"):
        replaced(build(case)).set_input_size(img_size=64)


@pytest.mark.parametrize("case", ["levit", "tiny_vit", "efficientvit", "efficientformer", "efficientformerv2"])
def test_a_table_over_distances_has_one_entry_for_both_signs(case: str) -> None:
    theirs = build(case)
    for path, layer in positioned_layers(replaced(theirs)).items():
        table = theirs.get_submodule(path).attention_biases
        assert torch.equal(layer.rpe.table.flatten(1), table)


def test_vectors_do_not_fit_values_of_another_width() -> None:
    with pytest.raises(ValueError, match="'shaw' adds vectors of width 16 to values, which have width 32 here"):
        vit_rpe.replace_attention(build("levit"), "shaw")


def test_talking_heads_refuse_fused_kernels() -> None:
    with pytest.raises(ValueError, match="attn_impl='sdpa' cannot mix heads"):
        vit_rpe.replace_attention(build("efficientformerv2"), attn_impl="sdpa")


@pytest.mark.parametrize("case", ["swin", "swinv2", "swinv2_cr", "maxvit-tf", "coatnet", "gcvit"])
def test_features_only(case: str) -> None:
    name, small = CASES[case]
    theirs = timm.create_model(name, features_only=True, out_indices=(-2, -1), **small).eval()
    x = image(case)
    with torch.no_grad():
        for expected, found in zip(theirs(x), replaced(theirs)(x), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", DROP_IN)
def test_gradient_checkpointing(case: str) -> None:
    ours, x = replaced(build(case)), image(case)
    plain = torch.autograd.grad(ours(x).square().sum(), list(ours.parameters()))
    ours.set_grad_checkpointing(True)
    again = torch.autograd.grad(ours(x).square().sum(), list(ours.parameters()))
    for one, other in zip(plain, again, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", ONE_EACH)
def test_no_weight_decay_names_the_encodings(case: str) -> None:
    ours = replaced(build(case))
    undecayed = ours.no_weight_decay()
    expected = {
        f"{path}.rpe.{name}" for path, layer in positioned_layers(ours).items() for name in layer.rpe.no_weight_decay()
    }
    assert expected
    assert expected <= undecayed
    assert not [name for name in undecayed if "relative_position_bias_table" in name or "cpb_mlp" in name]
    assert {name for name in undecayed if name not in dict(ours.named_parameters())} <= {"pos_embed", "dist_token"}


def test_what_cannot_be_replaced_is_refused_by_its_class() -> None:
    with pytest.raises(ValueError, match=r"attention that can be recorded only: timm\.models\.cait\.ClassAttn"):
        vit_rpe.replace_attention(timm.create_model("xcit_nano_12_p16_224"))
    with pytest.raises(ValueError, match="no attention"):
        vit_rpe.replace_attention(timm.create_model("resnet10t"), "bias")
    with pytest.raises(ValueError, match="no relative position to keep"):
        vit_rpe.replace_attention(timm.create_model("vit_tiny_patch16_224", depth=1))
    with pytest.raises(ValueError, match="a model of this package already"):
        vit_rpe.replace_attention(tiny(), "bias")
    with pytest.raises(ValueError, match="for models, got 'swin'"):
        vit_rpe.replace_attention("swin")  # type: ignore[arg-type]


@pytest.mark.parametrize("case", CASES)
def test_content_is_read_or_refused(case: str) -> None:
    """Not where queries and keys are pooled, of another width or from elsewhere."""
    theirs = build(case)
    if not case.startswith(("mvitv2", "gcvit", "levit", "efficient")):
        assert torch.isfinite(replaced(theirs, "pape")(image(case))).all()
        return
    with pytest.raises(ValueError, match="'pape' reads what queries and keys are made from"):
        vit_rpe.replace_attention(theirs, "pape")
    assert not positioned_layers(theirs)


def test_nothing_changes_when_refused() -> None:
    model = build("swin")
    before = list(model.state_dict())
    with pytest.raises(ValueError, match="did you mean"):
        vit_rpe.replace_attention(model, "bais")
    assert list(model.state_dict()) == before
