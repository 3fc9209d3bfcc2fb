"""Which classes are attention at all, and which attention has no map of tokens over tokens.

A class is attention by what it is called; timm's that are called otherwise are named here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from torch import nn

NAMES = re.compile(r"attn|attention|^XCA$", re.IGNORECASE)
"""What the classes of attention are called."""
CALLED_OTHERWISE = (
    *("timm.models.convit.GPSA", "timm.models.convit.MHSA", "timm.models.iformer.SHMA", "timm.models.shvit.SHSA"),
    *("timm.models.vision_transformer.ParallelScalingBlock", "timm.models.vision_transformer.DiffParallelScalingBlock"),
    *("timm.models.csatv2.SpatialTransformerBlock", "timm.layers.other_pool.SimPool1d"),
    "timm.layers.other_pool.SimPool2d",
)
"""Attention over tokens whose class has another name."""

_CHANNELS = "its attention is over channels"
_GATE = "it scales the image by one gate, which no token asks for"
_FACTORISED = "its attention is factorised, keys meet values before queries"
WITHOUT_MAP = {
    "timm.models.xcit.XCA": _CHANNELS,
    "timm.models.davit.ChannelAttention": _CHANNELS,
    "timm.models.davit.ChannelAttentionV2": _CHANNELS,
    "timm.models.edgenext.CrossCovarianceAttn": _CHANNELS,
    "timm.layers.cbam.ChannelAttn": _CHANNELS,
    "timm.layers.cbam.LightChannelAttn": _CHANNELS,
    "timm.layers.selective_kernel.SelectiveKernelAttn": _CHANNELS,
    "timm.layers.split_attn.SplitAttn": _CHANNELS,
    "timm.layers.cbam.SpatialAttn": _GATE,
    "timm.layers.cbam.LightSpatialAttn": _GATE,
    "timm.layers.coord_attn.CoordAttn": _GATE,
    "timm.layers.coord_attn.SimpleCoordAttn": _GATE,
    "timm.layers.coord_attn.EfficientLocalAttn": _GATE,
    "timm.layers.coord_attn.StripAttn": _GATE,
    "timm.layers.global_context.GlobalContext": _GATE,
    "timm.models.coat.FactorAttnConvRelPosEnc": _FACTORISED,
    "timm.models.efficientvit_mit.LiteMLA": _FACTORISED,
    "timm.layers.lambda_layer.LambdaLayer": _FACTORISED,
    "timm.models.mobilevit.LinearSelfAttention": "one weighting of the image serves all tokens",
    "timm.models.swiftformer.EfficientAdditiveAttention": "one weighting of the image serves all tokens",
    "timm.layers.non_local_attn.BilinearAttnTransform": "it mixes whole rows and whole columns",
    "timm.models.nextvit.ConvAttention": "it is a convolution",
    "timm.models.efficientvim.HSMSSD": "it is a state space model",
}
"""Attention that says nothing about which token looks at which, with the reason."""


def name_of_kind(kind: type[nn.Module]) -> str:
    """The full name of a class."""
    return f"{kind.__module__}.{kind.__name__}"


def is_attention(kind: type[nn.Module]) -> bool:
    """Whether a class is attention, or what holds one and is called like it."""
    name = name_of_kind(kind)
    return NAMES.search(kind.__name__) is not None or name in CALLED_OTHERWISE or name in WITHOUT_MAP


def attention_of(model: nn.Module) -> Iterator[nn.Module]:
    """The modules of a model that are attention; what only holds another one (a block, a partition) is none."""
    for module in model.modules():
        if is_attention(type(module)) and not any(
            is_attention(type(inner)) for inner in module.modules() if inner is not module
        ):
            yield module
