"""A vision model of Hugging Face's ``transformers``, by its folder or its name there."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vit_rpe.commands._model import NamedModel

if TYPE_CHECKING:
    import torch
    from torch import nn

    from vit_rpe.data import Preprocessing

__all__ = ["hugging_face_model"]

TOWERS = ("vision_model", "vision_encoder", "image_encoder", "vision_tower")
"""What models of more than images call the part that takes them."""
RESAMPLE = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}
"""Pillow's numbers, as preprocessor files have them."""


def hugging_face_model(name: str, size: tuple[int, int] | None, device: torch.device) -> NamedModel:
    """The model of a folder (nothing is downloaded then), or of the hub.

    Raises:
        ValueError: no ``transformers``, no such model, or one that takes no images.
    """
    try:
        import transformers
    except ImportError as error:
        raise ValueError('--hf needs transformers: pip install "vit_rpe[hf]"') from error
    folder = Path(name).expanduser()
    local = {"local_files_only": True} if folder.is_dir() else {}
    place = str(folder) if local else name
    try:
        config = transformers.AutoConfig.from_pretrained(place, **local)
        classifies = any("ForImageClassification" in each for each in config.architectures or ())
        kind = transformers.AutoModelForImageClassification if classifies else transformers.AutoModel
        model, found = kind.from_pretrained(place, output_loading_info=True, **local)
    except (OSError, ValueError) as error:
        raise ValueError(f"--hf {name}: {str(error).strip().splitlines()[0]}") from error
    path, tower = next(
        ((f"{each}.", getattr(model, each)) for each in TOWERS if getattr(model, each, None) is not None), ("", model)
    )
    if getattr(tower, "main_input_name", "pixel_values") != "pixel_values":
        raise ValueError(f"{name} is a {type(model).__name__}, which takes {tower.main_input_name}, not images")
    drawn = [key for key in found["missing_keys"] if key.startswith(path)]
    if drawn:
        some = ", ".join(sorted(drawn)[:3])
        print(f"note: {len(drawn)} parameters of {name} are not in its files and are random: {some}", file=sys.stderr)
    treatment = _treatment(place, local, tower.config, size)
    _gives_tensors(tower, treatment.img_size)
    labels = getattr(config, "id2label", {}) if classifies else {}
    names = [labels[number] for number in sorted(labels)] or None
    return NamedModel(tower.to(device).eval(), treatment, name, names, device)


def _treatment(place: str, local: dict[str, bool], config: Any, size: tuple[int, int] | None) -> Preprocessing:
    """What the model's preprocessor file says of size and normalisation."""
    from transformers.image_processing_base import ImageProcessingMixin

    from vit_rpe.data import Preprocessing

    try:
        told, _ = ImageProcessingMixin.get_image_processor_dict(place, **local)
    except OSError:
        told = {}
        print(f"note: {place} has no preprocessor_config.json: pixels are scaled to -1..1", file=sys.stderr)
    native = _sides(told.get("crop_size") if told.get("do_center_crop") else told.get("size"))
    native = native or _sides(getattr(config, "image_size", None)) or (224, 224)
    resized = _sides(told.get("size"))
    cuts = told.get("do_center_crop") and resized is not None and size is None
    channels = int(getattr(config, "num_channels", 3))
    plain = told.get("do_normalize") is False
    mean = (0.0,) * channels if plain else told.get("image_mean") or (0.5,) * channels
    std = (1.0,) * channels if plain else told.get("image_std") or (0.5,) * channels
    return Preprocessing(
        img_size=size or native,
        in_chans=channels,
        mean=tuple(mean),
        std=tuple(std),
        crop_pct=min(1.0, native[0] / resized[0]) if cuts and resized is not None else 1.0,
        interpolation=RESAMPLE.get(int(told.get("resample", 3)), "bicubic"),
    )


def _sides(size: Any) -> tuple[int, int] | None:
    """Height and width that a preprocessor or configuration file means."""
    if isinstance(size, dict):
        if size.get("height") and size.get("width"):
            return int(size["height"]), int(size["width"])
        side = size.get("shortest_edge") or size.get("longest_edge")
        return None if side is None else (int(side), int(side))
    if isinstance(size, int):
        return size, size
    return None if size is None else (int(size[0]), int(size[1]))


def _gives_tensors(model: nn.Module, size: tuple[int, int]) -> None:
    """Make the model give scores, or its last tokens, and take images of another size than it was trained on."""
    native = _sides(getattr(model.config, "image_size", None))
    if native not in (None, size) and "interpolate_pos_encoding" in inspect.signature(model.forward).parameters:

        def stretched(_: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
            return args, {**kwargs, "interpolate_pos_encoding": True}

        model.register_forward_pre_hook(stretched, with_kwargs=True)

    def tensor(_: Any, args: Any, output: Any) -> Any:
        logits = getattr(output, "logits", None)
        return output[0] if logits is None else logits

    model.register_forward_hook(tensor)
