"""The trained models that come with the package: folders of ``vit_rpe/weights``, as ``vit-rpe share`` writes them.

A folder is named as the model is in timm, ``ARCHITECTURE.TAG``, and holds ``model.safetensors`` in half precision,
``config.json``, a model card ``README.md`` and its picture. Loading one runs no code and asks no other machine.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["WEIGHTS", "Shipped", "shipped_models", "tags_of"]

WEIGHTS = Path(__file__).parent.parent / "weights"
_OF_THE_CONFIGURATION = ("num_classes", "in_chans", "img_size")


class Shipped(NamedTuple):
    """One trained model: its folder, its arguments, and what timm calls its pretrained configuration.

    ``args`` are those that timm does not read off ``cfg``; ``results`` what was measured with the very files.
    """

    architecture: str
    tag: str
    folder: Path
    args: dict[str, Any]
    cfg: dict[str, Any]
    data: str
    results: dict[str, Any]

    @property
    def name(self) -> str:
        """As ``timm.create_model`` and ``--checkpoint`` take it."""
        return f"{self.architecture}.{self.tag}"


@cache
def shipped_models() -> dict[str, Shipped]:
    """Every trained model by its name, in the order of the names."""
    folders = sorted(file.parent for file in WEIGHTS.glob("*/config.json"))
    return {folder.name: _read(folder) for folder in folders}


def tags_of(architecture: str) -> dict[str, Shipped]:
    """The trained models of one architecture, by tag."""
    return {one.tag: one for one in shipped_models().values() if one.architecture == architecture}


def _read(folder: Path) -> Shipped:
    content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    architecture, _, tag = folder.name.partition(".")
    args = {key: value for key, value in content["model_args"].items() if key not in _OF_THE_CONFIGURATION}
    cfg = {
        **content["pretrained_cfg"],
        "file": str(folder / "model.safetensors"),
        "label_names": tuple(content["label_names"]),
        "license": "apache-2.0",
    }
    return Shipped(architecture, tag, folder, args, cfg, content["data"]["name"], content["results"])
