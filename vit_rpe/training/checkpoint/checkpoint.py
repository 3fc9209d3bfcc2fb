"""Checkpoints: ``model.safetensors`` beside a ``config.json`` that says how to build the model and feed it.

Loading runs no code from the files: weights are safetensors, the rest is JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import timm
import timm.models
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import vit_rpe.models  # noqa: F401  (registers the models with timm)
from vit_rpe.checks import closest
from vit_rpe.data import Preprocessing, Treatment, image_treatment, read_treatment
from vit_rpe.models.shipped import shipped_models
from vit_rpe.plugins import how_to_pass, missing_plugins
from vit_rpe.training.checkpoint.files import newest

__all__ = [
    "CheckpointInfo",
    "LoadedCheckpoint",
    "find_checkpoint",
    "load_checkpoint",
    "read_info",
    "read_weights",
    "save_checkpoint",
]

_FOR_TIMM = ("architecture", "num_classes", "label_names", "pretrained_cfg")


@dataclass
class CheckpointInfo:
    """What ``config.json`` holds.

    ``model_name`` and ``model_args`` rebuild the model through ``timm.create_model`` (``num_classes``, ``in_chans`` and
    ``img_size`` included); ``class_names`` has one name per output; ``preprocessing`` is ``Preprocessing.to_dict()``;
    ``grid`` is the token grid the weights were made for (``None`` if the model has no such notion); ``data``
    the data options; ``results`` the metrics after ``epoch`` epochs (and ``step`` updates of the next); ``plugins``
    what was imported to make the model.

    The file holds the same once more in timm's words, so that ``timm.create_model("local-dir:FOLDER")`` reads it.
    """

    model_name: str
    model_args: dict[str, Any]
    class_names: list[str]
    preprocessing: dict[str, Any]
    grid: list[int] | None = None
    data: dict[str, Any] = field(default_factory=dict)
    epoch: int = 0
    step: int = 0
    results: dict[str, float] = field(default_factory=dict)
    plugins: list[str] = field(default_factory=list)

    def for_timm(self) -> dict[str, Any]:
        """What timm looks for in a ``config.json``."""
        published = timm.models.get_pretrained_cfg(self.model_name, allow_unregistered=True)
        kept = ("first_conv", "classifier", "fixed_input_size")
        of_name = {key: value for key, value in (published.to_dict() if published else {}).items() if key in kept}
        images = self.preprocessing if "in_chans" in self.preprocessing else None
        inputs = (
            {key: images[key] for key in ("mean", "std", "crop_pct", "interpolation")}
            | {"input_size": [images["in_chans"], *images["img_size"]]}
            if images
            else {}
        )
        return {
            "architecture": self.model_name,
            "num_classes": len(self.class_names),
            "label_names": self.class_names,
            "pretrained_cfg": {**of_name, **inputs, "num_classes": len(self.class_names)},
        }


@dataclass
class LoadedCheckpoint:
    """A model in eval mode, what it was built from, the treatment of its inputs (images at its size, or text), and the
    folder."""

    model: nn.Module
    info: CheckpointInfo
    treatment: Treatment
    folder: Path

    @property
    def preprocessing(self) -> Preprocessing:
        """The treatment of images.

        Raises:
            ValueError: the model takes text.
        """
        return image_treatment(self.treatment, f"the model in {self.folder}")

    @property
    def class_names(self) -> list[str]:
        """One name per output."""
        return self.info.class_names


def save_checkpoint(folder: Path, weights: dict[str, Tensor], info: CheckpointInfo) -> None:
    """Write the two files into an existing folder; tensors that share memory are written apart."""
    save_file(
        {name: value.detach().cpu().contiguous().clone() for name, value in weights.items()},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    content = {**asdict(info), **info.for_timm()}
    (folder / "config.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def find_checkpoint(path: str | Path) -> Path:
    """The folder with the two files: ``path`` itself, its ``best/`` or ``last/``, or the one a file lies in; or that of
    a trained model that comes with the package, by its name.

    Raises:
        ValueError: there is no checkpoint.
    """
    shipped, name = shipped_models(), str(path)
    if name in shipped:
        return shipped[name].folder
    path = Path(path)
    places = [path.parent] if path.is_file() else [path, path / "best", path / "last"]
    for place in places:
        folder = newest(place)
        if folder is not None and (folder / "model.safetensors").is_file():
            return folder
    looked = ", ".join(str(place / "model.safetensors") for place in places)
    raise ValueError(f"no checkpoint at {path}: looked for {looked}{closest(name, shipped)}")


def read_info(folder: Path) -> CheckpointInfo:
    """Read ``config.json``.

    Raises:
        ValueError: the file is missing or is not of this kind.
    """
    try:
        content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return CheckpointInfo(**{key: value for key, value in content.items() if key not in _FOR_TIMM})
    except (AttributeError, OSError, TypeError, ValueError) as error:
        raise ValueError(f"{folder / 'config.json'} does not describe a checkpoint: {error}") from error


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Read ``model.safetensors``.

    Raises:
        ValueError: the file is damaged, or holds numbers that are not finite.
    """
    file = folder / "model.safetensors"
    try:
        weights = load_file(file)
    except (OSError, SafetensorError) as error:
        raise ValueError(f"cannot read {file}: {error}") from error
    broken = [name for name, value in weights.items() if not value.isfinite().all()]
    if broken:
        raise ValueError(f"{file} holds numbers that are not finite, in {', '.join(broken[:3])}")
    return weights


def load_checkpoint(
    path: str | Path, *, img_size: int | tuple[int, int] | None = None, model_args: Mapping[str, Any] | None = None
) -> LoadedCheckpoint:
    """Build the model of a checkpoint and load its weights.

    Args:
        path: a run folder (``best/`` is taken, else ``last/``), a checkpoint folder, a file in one, or the name of a
            trained model that comes with the package, such as ``vit_rpe_nano_patch2_8.bias_digits``.
        img_size: image side or (height, width) in pixels; the weights are loaded at their own size first and then
            resampled by the model. ``None`` keeps their own size.
        model_args: arguments of the model, ``rpe`` among them, to read the same weights with others than they were
            trained with.

    Raises:
        ValueError: no checkpoint there, a damaged one, weights that do not fit, or a size the model refuses.
    """
    folder = find_checkpoint(path)
    info = read_info(folder)
    if model_args:
        info = replace(info, model_args={**info.model_args, **model_args})
    try:
        treatment: Treatment = read_treatment(info.preprocessing)
        model = timm.create_model(info.model_name, **info.model_args)
    except (RuntimeError, TypeError, ValueError) as error:  # options that are missing, unknown or no options at all
        missing = missing_plugins(info.plugins)
        hint = f"; {how_to_pass(missing)}" if missing else ""
        raise ValueError(f"{folder / 'config.json'} does not describe a checkpoint: {error}{hint}") from error
    try:
        model.load_state_dict(read_weights(folder))
    except RuntimeError as error:
        raise ValueError(f"weights in {folder} do not fit {info.model_name}: {error}") from error
    if img_size is not None:
        size = (img_size, img_size) if isinstance(img_size, int) else (img_size[0], img_size[1])
        treatment = treatment.resized(size)
        model.set_input_size(img_size=size)  # type: ignore[operator]
    return LoadedCheckpoint(model.eval(), info, treatment, folder)
