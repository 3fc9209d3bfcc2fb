"""No attention of timm or torchvision is passed over in silence: described, refused by name, or without a map."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import sys
import warnings
from collections.abc import Iterator
from functools import cache, partial

import pytest
import timm
import torch
import torchvision
from timm.layers.coord_attn import EfficientLocalAttn
from timm.layers.lambda_layer import LambdaLayer
from timm.models import list_models, list_modules
from torch import nn

from vit_rpe.models.families import is_described, require_described
from vit_rpe.models.families._kinds import CALLED_OTHERWISE, WITHOUT_MAP, attention_of, is_attention, name_of_kind
from vit_rpe.models.families._registry import _FAMILIES
from vit_rpe.viz import record

COMPUTES = re.compile(r"softmax\(|scaled_dot_product_attention|MultiheadAttention\(")
NOT_ATTENTION = {
    "timm.layers.split_attn.RadixSoftmax": "a softmax over groups of channels",
    "timm.layers.ml_decoder.TransformerDecoderLayerOptimal": "holds torch's MultiheadAttention",
    "timm.models.efficientvim.EfficientViM": "weighs the outputs of its stages",
    "timm.models.efficientvim.EfficientViMDistilled": "weighs the outputs of its stages",
    "torchvision.models.vision_transformer.EncoderBlock": "holds torch's MultiheadAttention",
    "torchvision.models.detection.roi_heads.RoIHeads": "classifies boxes",
    "torchvision.models.detection.ssd.SSD": "classifies boxes",
}
"""Classes with a softmax, or around an attention, that are none."""


@cache
def kinds() -> dict[str, type[nn.Module]]:
    """All classes of modules that timm and torchvision define, by their full names."""
    found: dict[str, type[nn.Module]] = {}
    for package in (timm.layers, timm.models, torchvision.models, torchvision.ops):
        for part in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if "quantization" in part.name:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                module = importlib.import_module(part.name)
            for kind in vars(module).values():
                if inspect.isclass(kind) and issubclass(kind, nn.Module) and kind.__module__ == part.name:
                    found[name_of_kind(kind)] = kind
    return found


@cache
def sources(module: str) -> dict[str, str]:
    """The code of every class of a module, by its name."""
    text = inspect.getsource(sys.modules[module])
    lines = text.splitlines()
    nodes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    return {node.name: "\n".join(lines[node.lineno - 1 : node.end_lineno]) for node in nodes}


def computes(kind: type[nn.Module]) -> bool:
    """Whether the code of a class has something of an attention in it."""
    return COMPUTES.search(sources(kind.__module__).get(kind.__name__, "")) is not None


def test_every_class_that_looks_like_attention_is_accounted_for() -> None:
    silent = [
        name
        for name, kind in kinds().items()
        if computes(kind) and kind not in _FAMILIES and not is_attention(kind) and name not in NOT_ATTENTION
    ]
    assert silent == []


def test_the_lists_name_classes_that_exist() -> None:
    assert {*CALLED_OTHERWISE, *WITHOUT_MAP, *NOT_ATTENTION} <= {*kinds()}
    assert not {name for name in (*CALLED_OTHERWISE, *WITHOUT_MAP) if kinds()[name] in _FAMILIES}


def architectures() -> Iterator[str]:
    """One of timm's for every file of its models, a short name."""
    for module in filter(partial(hasattr, timm.models), list_modules()):
        names = [name for name in list_models(module=module) if not name.startswith("vit_rpe")]
        if names:
            yield min(names, key=lambda name: (len(name), name))


def silent_in(model: nn.Module) -> list[str]:
    """Attention of a model that recording would pass over without a word."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            require_described(model)
        except ValueError:
            return []
    left_out = any("left out of the recording" in str(each.message) for each in told)
    return [
        name_of_kind(type(module))
        for module in model.modules()
        if name_of_kind(type(module)) in kinds()
        and computes(type(module))
        and not is_described(module)
        and name_of_kind(type(module)) not in NOT_ATTENTION
        and not (left_out and name_of_kind(type(module)) in WITHOUT_MAP)
    ]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", list(architectures()))
def test_no_model_is_passed_over(name: str) -> None:
    with torch.device("meta"):
        model = timm.create_model(name)
    assert silent_in(model) == []


class Held(nn.Module):
    """A class of one's own with a name of attention."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner


class MyAttentionBlock(Held):
    """Another."""


def test_only_what_holds_an_attention_is_a_holder() -> None:
    assert list(attention_of(MyAttentionBlock(nn.MultiheadAttention(4, 2)))) != []
    assert [type(each) for each in attention_of(MyAttentionBlock(nn.Linear(2, 2)))] == [MyAttentionBlock]
    with pytest.raises(ValueError, match=r"no family describes attention of type .*MyAttentionBlock"):
        require_described(nn.Sequential(nn.MultiheadAttention(4, 2), MyAttentionBlock(nn.Linear(2, 2))))
    require_described(MyAttentionBlock(nn.MultiheadAttention(4, 2)))


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (lambda: timm.layers.SimPool2d(8), "no family describes attention of type timm.layers.other_pool.SimPool2d"),
        (lambda: LambdaLayer(8, feat_size=(4, 4), dim_head=4), "its attention is factorised"),
        (lambda: EfficientLocalAttn(16), "it scales the image by one gate"),
        (lambda: timm.layers.GlobalContext(16), "it scales the image by one gate"),
    ],
)
def test_attention_by_other_names_is_refused(layer: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason.replace(".", r"\.")), record(nn.Sequential(layer())):  # type: ignore[operator]
        pass


def test_a_gate_beside_attention_is_left_out_with_a_warning() -> None:
    both = nn.Sequential(timm.layers.GlobalContext(8), timm.layers.AttentionPool2d(8, 4, num_heads=2)).eval()
    with (
        torch.no_grad(),
        pytest.warns(UserWarning, match=r"left out of the recording: .*one gate"),
        record(both) as seen,
    ):
        both(torch.randn(1, 8, 4, 4))
    assert seen.names == ["1"]
