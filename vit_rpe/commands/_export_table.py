"""ViT-S/16 with every encoding, exported and run by ONNX Runtime: the second table in docs/timm.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

__all__ = ["print_export_table"]

DYNAMIC_DEPTH = 2
"""Blocks of the models with dynamic height and width: every block is traced alike, and slowly."""


def print_export_table(names: Sequence[str] | None, depth: int | None) -> None:
    """Print one row an encoding, in Markdown: largest differences of logits, fixed and dynamic size.

    Args:
        names: of encodings; None for all.
        depth: blocks of the models; None for all twelve.
    """
    from vit_rpe.encodings import list_encodings

    print(f"| `rpe=` | any batch | any batch, height and width ({DYNAMIC_DEPTH} blocks) | largest logit |")
    print("|---|---|---|---|")
    for name in names or list_encodings():
        fixed, largest = export_row(name, depth, dynamic_size=False)
        dynamic, _ = export_row(name, DYNAMIC_DEPTH, dynamic_size=True)
        print(f"| `{name}` | {fixed} | {dynamic} | {largest:.1f} |", flush=True)


def export_row(name: str, depth: int | None, *, dynamic_size: bool) -> tuple[str, float]:
    """The largest difference, or the reason why there is none, and the largest logit for scale."""
    import timm
    import torch

    from vit_rpe.models.exchange.coverage import randomize
    from vit_rpe.models.export import export_model

    blocks: dict[str, Any] = {} if depth is None else {"depth": depth}
    model: Any = timm.create_model("vit_rpe_small_patch16_224", rpe=name, class_token=True, num_classes=11, **blocks)
    randomize(model.eval(), seed=0)
    images = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        largest = float(model(images).abs().max())
    with TemporaryDirectory() as folder:
        try:
            difference = export_model(model, Path(folder) / "model.onnx", file_format="onnx", dynamic_size=dynamic_size)
        except (ValueError, RuntimeError) as error:
            return str(error), largest
    return f"{difference:.1e}", largest
