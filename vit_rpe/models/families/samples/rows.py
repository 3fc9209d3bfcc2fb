"""Which small models stand for which family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from vit_rpe.models.families.samples import of_timm

__all__ = ["ROWS", "Row", "architecture_of", "sample_of"]


@dataclass(frozen=True)
class Row:
    """One family of models.

    Attributes:
        package: that has it.
        family: what it is called.
        cases: its small models, by their names in ``of_timm``, ``of_hugging_face`` or ``of_torchvision``.
    """

    package: str
    family: str
    cases: tuple[str, ...]


ROWS: tuple[Row, ...] = (
    Row("timm", "plain ViT", ("vit", "vit-refining")),
    Row("timm", "DINOv2 with registers", ("dinov2",)),
    Row("timm", "DINOv3", ("dinov3", "dinov3-square")),
    Row("timm", "BEiT", ("beit",)),
    Row("timm", "EVA-02", ("eva02", "eva02-base")),
    Row("timm", "RoPE-ViT", ("rope",)),
    Row("timm", "ViT with relative position", ("relpos", "srelpos", "relpos-rpn", "relpos-cls", "relpos-table")),
    Row("timm", "Perception Encoder, pooling head", ("pe",)),
    Row("timm", "SigLIP, pooling head", ("siglip",)),
    Row("timm", "NaFlexViT", ("naflexvit",)),
    Row("timm", "CLIP ResNet, pooling head over maps", ("resnet_clip", "resnet_clip-rotary")),
    Row("timm", "Swin", ("swin", "swin-square")),
    Row("timm", "Swin V2", ("swinv2", "swinv2-square", "swinv2-pretrained")),
    Row("timm", "Swin V2-CR", ("swinv2_cr",)),
    Row("timm", "MaxViT", ("maxvit-mlp", "maxvit-table", "maxvit-parallel", "maxvit-tf", "maxvit-square")),
    Row("timm", "CoAtNet", ("coatnet", "coatnet-mlp")),
    Row("timm", "Segment Anything, ViTDet", ("sam", "sam-square")),
    Row("timm", "Hiera", ("hiera",)),
    Row("timm", "SAM 2's Hiera", ("sam2",)),
    Row("timm", "MViTv2", ("mvitv2", "mvitv2-cls")),
    Row("timm", "LeViT", ("levit", "levit-conv")),
    Row("timm", "TinyViT", ("tiny_vit",)),
    Row("timm", "EfficientViT-M", ("efficientvit",)),
    Row("timm", "EfficientFormer", ("efficientformer",)),
    Row("timm", "EfficientFormerV2", ("efficientformerv2",)),
    Row("timm", "GCViT", ("gcvit", "gcvit-square")),
    Row("timm", "Twins", ("twins",)),
    Row("timm", "CaiT", ("cait",)),
    Row("timm", "XCiT's class attention", ("xcit",)),
    Row("timm", "Sapiens2", ("sapiens2",)),
    Row("timm", "Qwen3-VL's tower", ("qwen3",)),
    Row("timm", "DeepSeek's tower", ("deepseek",)),
    Row("timm", "Gemma 4's tower", ("gemma4",)),
    Row("transformers", "ViT", ("vit",)),
    Row("transformers", "DeiT", ("deit",)),
    Row("transformers", "BEiT", ("beit", "beit-shared")),
    Row("transformers", "DINOv2", ("dinov2",)),
    Row("transformers", "DINOv2 with registers", ("dinov2-registers",)),
    Row("transformers", "DINOv3", ("dinov3",)),
    Row("transformers", "SigLIP's tower and its pooling head", ("siglip",)),
    Row("transformers", "CLIP's tower", ("clip",)),
    Row("transformers", "Swin", ("swin",)),
    Row("transformers", "Swin V2", ("swinv2", "swinv2-pretrained")),
    Row("transformers", "Segment Anything", ("sam",)),
    Row("transformers", "ViTDet", ("vitdet",)),
    Row("torchvision", "ViT", ("vit",)),
    Row("torchvision", "Swin", ("swin", "swin-narrow")),
    Row("torchvision", "Swin V2", ("swinv2",)),
    Row("torchvision", "MaxViT", ("maxvit",)),
)


def sample_of(package: str, case: str, *, unfused: str | None = None) -> tuple[nn.Module, Tensor, dict[str, Any]]:
    """A small random model, two images for it, and what its ``forward`` takes besides.

    Args:
        package: ``"timm"``, ``"transformers"`` or ``"torchvision"``.
        case: of a :class:`Row`.
        unfused: what ``transformers`` calls attention whose weights can be watched; then they can be in every package.

    Raises:
        ImportError: the package is not installed.
    """
    if package == "timm":
        model, x = of_timm.sample(case)
        for module in model.modules():
            if unfused and hasattr(module, "fused_attn"):
                module.fused_attn = False  # type: ignore[assignment]
        return model, x, {}
    if package == "torchvision":
        from vit_rpe.models.families.samples.of_torchvision import build, image

        return build(case), image(case), {}
    from vit_rpe.models.families.samples.of_hugging_face import CASES
    from vit_rpe.models.families.samples.of_hugging_face import build as build_tower
    from vit_rpe.models.families.samples.of_hugging_face import image as image_of_tower

    return build_tower(case, unfused), image_of_tower(case), CASES[case][3]


def architecture_of(package: str, case: str) -> str:
    """The name of a case's architecture, or of its class."""
    if package == "timm":
        return of_timm.CASES[case][0] if case in of_timm.CASES else {**of_timm.POOLED, **of_timm.OTHERS}[case][0]
    return type(sample_of(package, case)[0]).__name__
