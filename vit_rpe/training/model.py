"""From a ``ModelConfig`` to a model."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import timm
import torch
from torch import nn

import vit_rpe.models  # noqa: F401  (registers the models with timm)
from vit_rpe.checks import closest
from vit_rpe.data import DataBundle, DataOptions, ImageData, TextData
from vit_rpe.encodings import find_encodings
from vit_rpe.models.backbone.position import remembered_specs
from vit_rpe.models.exchange.in_place import KEEP, positioned_layers
from vit_rpe.training.checkpoint.belonging import check_classes, check_vocabulary
from vit_rpe.training.checkpoint.checkpoint import load_checkpoint
from vit_rpe.training.config.schema import ModelConfig

__all__ = ["ModelPlan", "build_model", "meta_model", "plan_model", "token_grid"]


_OF_TEXT = ("vocab_size", "length", "in_features", "head", "causal")


@dataclass(frozen=True)
class ModelPlan:
    """A model that was checked and not yet built.

    Attributes:
        name: of the model in timm.
        args: its arguments, without those that the data give.
        img_size, in_chans: of the images it takes; None for a model of sequences.
    """

    name: str
    args: dict[str, Any]
    img_size: tuple[int, int] | None
    in_chans: int | None

    @property
    def takes(self) -> str:
        """What goes in, in words."""
        if self.img_size is None:
            return "text"
        channels = f"{self.in_chans} channel{'s' if self.in_chans != 1 else ''}"
        return f"images {self.img_size[0]}x{self.img_size[1]} of {channels}"


def _create(name: str, args: dict[str, Any], **more: Any) -> nn.Module:
    try:
        return timm.create_model(name, **args, **more)
    except TypeError as error:  # an argument that the model does not have
        raise ValueError(f"model.args do not fit {name}: {error}") from error


def plan_model(config: ModelConfig, data: DataOptions) -> ModelPlan:
    """Check a model's name and arguments by building it without memory.

    Args:
        config: the model.
        data: the data; their ``img_size`` must not contradict ``model.img_size``, and text needs a sequence model.

    Raises:
        ValueError: an unknown name, an argument or data that do not fit, or two sizes that differ.
    """
    if not timm.is_model(config.name):
        hint = closest(config.name, timm.list_models("vit_rpe*")) or closest(config.name, timm.list_models())
        raise ValueError(f"unknown model.name {config.name!r}{hint}; timm.list_models('vit_rpe*') lists ours")
    if config.pretrained and config.checkpoint is not None:
        raise ValueError("give model.pretrained or model.checkpoint, not both")
    args = dict(config.args)
    for key in ("num_classes", "img_size", "rpe", "pretrained", *_OF_TEXT):
        if key in args:
            where = f"model.{key}" if key in ("img_size", "rpe", "pretrained") else "the data"
            raise ValueError(f"model.args must not hold {key!r}: it comes from {where}")
    takes = "text" if config.name in timm.list_models(module="rpe_sequence") else "images"
    if takes != data.kind:
        words = {"text": "token sequences", "images": "images"}[takes]
        raise ValueError(f"model.name {config.name} takes {words}, which data.name {data.name} does not give")
    return _PLANS[takes](config, args, data)


def _plan_images(config: ModelConfig, args: dict[str, Any], data: ImageData) -> ModelPlan:
    data_size = data.img_size
    size = config.img_size if config.img_size is not None else data_size
    if size is not None and data_size is not None and _pair(size) != _pair(data_size):
        raise ValueError(f"model.img_size is {size} but data.img_size is {data_size}; give one of them")
    if size is not None:
        args["img_size"] = _pair(size)
    if config.rpe is not None:
        args["rpe"] = config.rpe
    with torch.device("meta"):
        model = _create(config.name, args)
    if size is None:
        size = tuple(model.pretrained_cfg["input_size"][1:])  # type: ignore[index]
    channels = args.get("in_chans", model.pretrained_cfg["input_size"][0])  # type: ignore[index]
    return ModelPlan(config.name, args, _pair(size), int(channels))


def _plan_sequence(config: ModelConfig, args: dict[str, Any], data: TextData) -> ModelPlan:
    if config.img_size is not None:
        raise ValueError(f"model.img_size is {config.img_size}, but {config.name} takes token sequences")
    if config.rpe is not None:
        args["rpe"] = config.rpe
    with torch.device("meta"):
        _create(config.name, args, vocab_size=2)
    return ModelPlan(config.name, args, None, None)


_PLANS: dict[str, Callable[[ModelConfig, dict[str, Any], Any], ModelPlan]] = {
    "images": _plan_images,
    "text": _plan_sequence,
}


def meta_model(plan: ModelPlan) -> nn.Module:
    """The model of a plan without memory, to ask it for its parameters' names and shapes."""
    with torch.device("meta"):
        return _create(plan.name, plan.args, **({"vocab_size": 2} if plan.takes == "text" else {}))


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))


def token_grid(model: nn.Module) -> list[int] | None:
    """Patches per axis of a vision transformer; ``None`` for models without patches."""
    embed = getattr(model, "patch_embed", None)
    grid = getattr(embed, "grid_size", None)
    return None if grid is None else [int(side) for side in grid]


def build_model(plan: ModelPlan, config: ModelConfig, bundle: DataBundle) -> tuple[nn.Module, dict[str, Any]]:
    """Build the model for its data and give it its starting weights.

    Returns:
        The model on the CPU, and the arguments that ``timm.create_model`` needs to build it again.

    Raises:
        ValueError: the checkpoint to start from does not fit.
    """
    args = {**plan.args, **bundle.treatment.model_args(bundle.num_classes)}
    model = _create(plan.name, args, pretrained=config.pretrained)
    before = _natives(model)
    if config.checkpoint is not None:
        _start_from(model, config.checkpoint, plan.img_size, bundle)
    grid = token_grid(model)
    if grid is not None and min(grid) < 4:
        warnings.warn(
            f"the token grid is only {grid[0]}x{grid[1]}: positions say little on so few tokens; a smaller patch or "
            f"a larger image than now ({plan.takes}) gives more",
            stacklevel=2,
        )
    specs = _remembered(model, args.get("rpe"), before)  # a fine-tuned encoding may hold the size it was trained on
    return model, args if specs is None else {**args, "rpe": specs}


def _natives(model: nn.Module) -> dict[str, Any]:
    """The sizes that encodings hold, by their paths."""
    return {path: encoding.remembered().get("native") for path, encoding in find_encodings(model)}


def _remembered(model: nn.Module, rpe: Any, before: dict[str, Any]) -> list[dict[str, Any]] | None:
    """``rpe`` that builds the model with the sizes its encodings hold; None where it does so already.

    Raises:
        ValueError: they came with the weights and differ from layer to layer, which no ``rpe`` says.
    """
    if not positioned_layers(model):
        return remembered_specs(model, rpe)
    after = _natives(model)
    if after == before:
        return None
    if rpe in (None, KEEP) or len(set(after.values())) > 1:
        sizes = ", ".join(sorted({str(size) for size in after.values()}))
        raise ValueError(
            f"the weights bring encodings trained on windows of {sizes}, which model.rpe={rpe!r} cannot say: start at "
            "the window size of the weights"
        )
    return remembered_specs(model, rpe)


def _start_from(model: nn.Module, checkpoint: str, img_size: tuple[int, int] | None, bundle: DataBundle) -> None:
    """Load weights for fine-tuning. At another image size they pass through their own model, which knows the grid they
    were made for and resamples positions; a classifier of other classes, or of the same in another order, starts anew,
    which is said.

    Raises:
        ValueError: weights of another model, or of text with another vocabulary.
    """
    source = load_checkpoint(checkpoint)
    if img_size is not None and source.preprocessing.img_size != img_size:
        source = load_checkpoint(checkpoint, img_size=img_size)
    weights, own = source.model.state_dict(), model.state_dict()
    head = getattr(model, "pretrained_cfg", {}).get("classifier") or "head"
    heads = (head,) if isinstance(head, str) else tuple(head)
    names = {"of": "the data", "by": f"model.checkpoint {checkpoint}"}
    check_vocabulary(bundle.treatment.to_dict(), source.info.preprocessing, **names)
    told = None
    try:
        check_classes(bundle.class_names, source.class_names, **names)
    except ValueError as error:
        told = str(error)
    for name in list(weights):
        of_head = name.rsplit(".", 1)[0] in heads and name in own
        if of_head and (told is not None or weights[name].shape != own[name].shape):
            weights[name] = own[name]
    if told is not None:
        warnings.warn(f"{told}: the classifier starts anew", stacklevel=3)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(f"the weights in {source.folder} do not fit the model: {error}") from error
