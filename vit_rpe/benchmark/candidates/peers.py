"""What is measured: our models, and the same encoding in other packages at the same width, depth and input."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from timm.models.beit import Beit
from timm.models.eva import Eva
from timm.models.vision_transformer_relpos import VisionTransformerRelPos
from torch import nn

from vit_rpe.checks import unknown_name
from vit_rpe.models.vision.vit import VisionTransformer
from vit_rpe.models.vit_rpe import SIZES

CLASSES = 1000


@dataclass(frozen=True)
class Shape:
    """A ViT to build: size by name, image side and patch in pixels, and a depth other than the size's own."""

    size: str = "small"
    img_size: int = 224
    patch_size: int = 16
    depth: int | None = None

    def dimensions(self) -> dict[str, Any]:
        """Width, depth and heads.

        Raises:
            ValueError: an unknown size.
        """
        if self.size not in SIZES:
            raise unknown_name("size", self.size, SIZES)
        found: dict[str, Any] = dict(SIZES[self.size])
        if self.depth is not None:
            found["depth"] = self.depth
        return found


def ours(encoding: Any, shape: Shape, *, attn_impl: str = "auto") -> nn.Module:
    """Our ViT with one encoding (a name, a mapping with options, or ``"none"``)."""
    return VisionTransformer(
        img_size=shape.img_size,
        patch_size=shape.patch_size,
        num_classes=CLASSES,
        rpe=encoding,
        attn_impl=attn_impl,
        **shape.dimensions(),
    )


def _timm_relpos(shape: Shape, kind: str) -> nn.Module:
    return VisionTransformerRelPos(
        img_size=shape.img_size,
        patch_size=shape.patch_size,
        num_classes=CLASSES,
        init_values=None,
        rel_pos_type=kind,
        **shape.dimensions(),
    )


def _timm_rope(shape: Shape, *, mixed: bool) -> nn.Module:
    return Eva(
        img_size=shape.img_size,
        patch_size=shape.patch_size,
        num_classes=CLASSES,
        global_pool="avg",
        class_token=False,
        qkv_fused=True,
        attn_type="rope",
        use_abs_pos_emb=False,
        use_rot_pos_emb=True,
        rope_type="mixed" if mixed else "cat",
        rope_grid_indexing="xy",
        rope_temperature=10.0 if mixed else 100.0,
        **shape.dimensions(),
    )


def _timm_beit(shape: Shape) -> nn.Module:
    return Beit(
        img_size=shape.img_size,
        patch_size=shape.patch_size,
        num_classes=CLASSES,
        init_values=None,
        use_abs_pos_emb=False,
        use_rel_pos_bias=True,
        **shape.dimensions(),
    )


def _transformers_beit(shape: Shape) -> nn.Module:
    from transformers import BeitConfig, BeitForImageClassification

    dims = shape.dimensions()
    options: dict[str, Any] = {"num_labels": CLASSES}
    config = BeitConfig(
        hidden_size=dims["embed_dim"],
        num_hidden_layers=dims["depth"],
        num_attention_heads=dims["num_heads"],
        intermediate_size=4 * dims["embed_dim"],
        image_size=shape.img_size,
        patch_size=shape.patch_size,
        use_relative_position_bias=True,
        layer_scale_init_value=0.0,
        **options,
    )
    return _Logits(BeitForImageClassification(config))


def _x_transformers(shape: Shape, *, flash: bool = True, **options: bool) -> nn.Module:
    from x_transformers import Encoder, ViTransformerWrapper

    dims = shape.dimensions()
    return ViTransformerWrapper(
        image_size=shape.img_size,
        patch_size=shape.patch_size,
        num_classes=CLASSES,
        attn_layers=Encoder(
            dim=dims["embed_dim"],
            depth=dims["depth"],
            heads=dims["num_heads"],
            attn_dim_head=dims["embed_dim"] // dims["num_heads"],
            attn_flash=flash,
            **options,
        ),
    )


class _Logits(nn.Module):
    """A transformers classifier that takes images and gives logits, like every other candidate."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.model(pixel_values=images).logits


@dataclass(frozen=True)
class Peer:
    """Another package's model, and which of our encodings (with which options) it is to be held against."""

    package: str
    encoding: Any
    build: Callable[[Shape], nn.Module]
    class_token: bool = False


PEERS: dict[str, Peer] = {
    "timm relpos table": Peer("timm", "bias", lambda shape: _timm_relpos(shape, "bias")),
    "timm relpos MLP": Peer(
        "timm", {"name": "cpb", "mode": "log", "hidden": 128}, lambda shape: _timm_relpos(shape, "mlp")
    ),
    "timm rope axial": Peer("timm", "rope", lambda shape: _timm_rope(shape, mixed=False)),
    "timm rope mixed": Peer("timm", "rope_mixed", lambda shape: _timm_rope(shape, mixed=True)),
    "timm BEiT": Peer("timm", {"name": "bias", "prefix": "learned"}, _timm_beit, class_token=True),
    "transformers BEiT": Peer(
        "transformers", {"name": "bias", "prefix": "learned"}, _transformers_beit, class_token=True
    ),
    "x-transformers alibi": Peer("x_transformers", "alibi", lambda shape: _x_transformers(shape, alibi_pos_bias=True)),
    "x-transformers T5": Peer(
        "x_transformers", "t5", lambda shape: _x_transformers(shape, flash=False, rel_pos_bias=True)
    ),
    "x-transformers rotary": Peer("x_transformers", "rope", lambda shape: _x_transformers(shape, rotary_pos_emb=True)),
}


def peers_of(package: str) -> dict[str, Peer]:
    """Layers of another installed package that ours are compared with; of all such packages for ``"all"``.

    Raises:
        ValueError: an unknown package, or one that is not installed.
    """
    packages = {peer.package for peer in PEERS.values()}
    if package == "all":
        return {name: peer for name, peer in PEERS.items() if importlib.util.find_spec(peer.package) is not None}
    package = package.replace("-", "_")
    if package not in packages:
        raise unknown_name("against", package, ["all", *sorted(packages)])
    if importlib.util.find_spec(package) is None:
        raise ValueError(f"--against {package}: the package is not installed here (pip install {package})")
    return {name: peer for name, peer in PEERS.items() if peer.package == package}


def absent() -> list[str]:
    """Packages with peers that are not installed here."""
    packages = {peer.package for peer in PEERS.values()}
    return sorted(name.replace("_", "-") for name in packages if importlib.util.find_spec(name) is None)


def counterpart(peer: Peer, shape: Shape) -> nn.Module:
    """Our model for the comparison with one peer: the same encoding, with a class token where the peer has one."""
    return VisionTransformer(
        img_size=shape.img_size,
        patch_size=shape.patch_size,
        num_classes=CLASSES,
        rpe=peer.encoding,
        class_token=peer.class_token,
        **shape.dimensions(),
    )
