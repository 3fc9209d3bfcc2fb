"""A trained model as a file that runs without this package: ``torch.export`` program or ONNX.

The batch is always dynamic; height and width on request, where everything in the model follows them. Every export is
run against the model it came from before it counts.
"""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from vit_rpe.checks import unknown_name
from vit_rpe.models.vision.vit import VisionTransformer
from vit_rpe.precision import placement_of

FORMATS = {"onnx": ".onnx", "torch_export": ".pt2"}
TOLERANCE = 1e-4
LONGEST_SIDE = 256
"""Most patches along one axis of an export with dynamic height and width."""


def export_model(
    model: nn.Module,
    path: Path,
    *,
    file_format: str,
    images: tuple[int, int, int] | None = None,
    dynamic_size: bool = False,
) -> float:
    """Write a model to a file and run the file.

    Args:
        model: takes images (B, in_chans, H, W); is put into evaluation mode.
        path: of the file to write.
        file_format: ``"onnx"`` or ``"torch_export"``.
        images: the native size of its images, (in_chans, H, W); a :class:`VisionTransformer` knows it.
        dynamic_size: height and width may differ from call to call, in whole patches.

    Returns:
        The largest absolute difference between the file's logits and the model's, on random images of several sizes.

    Raises:
        ValueError: an unknown format, a model of another dtype than float32, dynamic sizes that the model cannot
            follow, or a missing package.
        RuntimeError: the file's logits differ by more than :data:`TOLERANCE`.
    """
    if file_format not in FORMATS:
        raise unknown_name("format", file_format, FORMATS)
    if file_format == "onnx":
        require_packages("onnx", "onnxruntime", "onnxscript")
    dtypes = {parameter.dtype for parameter in model.parameters()}
    if dtypes != {torch.float32}:
        kinds = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
        raise ValueError(f"an export is run and checked in float32, the model is in {kinds}: call model.float() first")
    model = model.eval()
    if dynamic_size:
        follow_sizes(model)
    images = images_of(model) if images is None else images
    program = trace(model, images, dynamic_size=dynamic_size)
    path.parent.mkdir(parents=True, exist_ok=True)
    if file_format == "onnx":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the exporter, about itself
            torch.onnx.export(program, dynamo=True, verbose=False).save(str(path))  # type: ignore[union-attr]
    else:
        torch.export.save(program, path)
    difference = compare(model, images, path, file_format, dynamic_size=dynamic_size)
    if not difference <= TOLERANCE:
        raise RuntimeError(f"the logits of {path} differ from the model's by {difference:.1e}, more than {TOLERANCE}")
    return difference


def require_packages(*names: str) -> None:
    """Raise ValueError naming the packages that are not installed."""
    missing = []
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            missing.append(name)
    if missing:
        raise ValueError(f"export to ONNX needs {', '.join(missing)}: pip install 'vit_rpe[export]'")


def images_of(model: nn.Module) -> tuple[int, int, int]:
    """Channels and the native size of the images of a vision transformer of ours.

    Raises:
        ValueError: another kind of model.
    """
    if not isinstance(model, VisionTransformer):
        raise ValueError(f"the size of images is not known for {type(model).__name__}: give images=(in_chans, H, W)")
    height, width = model.patch_embed.img_size
    return model.in_chans, height, width


def follow_sizes(model: nn.Module) -> None:
    """Make a model take images of any size.

    Raises:
        ValueError: it is made for one size, or has a learned absolute embedding, which is resampled anew for every
            size.
    """
    if not isinstance(model, VisionTransformer):
        raise ValueError(
            f"height and width cannot be dynamic: {type(model).__name__} is made for one size; export one file a size"
        )
    if model.pos_embed is not None:
        raise ValueError(
            "height and width cannot be dynamic: the learned absolute embedding is resampled anew for every size; "
            "export one file a size, or train with pos_embed='none' or 'sincos'"
        )
    model.dynamic_img_size = True
    model.patch_embed.strict_img_size = False


def trace(model: nn.Module, images: tuple[int, int, int], *, dynamic_size: bool) -> torch.export.ExportedProgram:
    """The program of a model with dynamic batch, and dynamic height and width on request.

    Raises:
        ValueError: some step of the model fixes the size; the message says which.
    """
    place = placement_of(model)
    example = torch.zeros(2, *images, device=place.device, dtype=place.dtype)
    dims: dict[int, Any] = {0: torch.export.Dim("batch", min=1, max=4096)}
    if dynamic_size:
        assert isinstance(model, VisionTransformer)
        for axis, patch in enumerate(model.patch_embed.patch_size):
            dims[2 + axis] = patch * torch.export.Dim(("rows", "columns")[axis], min=2, max=LONGEST_SIDE)
    # the decomposition of the exported attention is this kernel's: traced with another, its strides would not fit
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        try:
            return torch.export.export(model, (example,), dynamic_shapes=(dims,))
        except (RuntimeError, ValueError, torch._dynamo.exc.UserError) as error:
            what = "height and width cannot be dynamic" if dynamic_size else "the model cannot be exported"
            raise ValueError(f"{what}: {str(error).strip().splitlines()[0]}") from error


def compare(
    model: nn.Module, images: tuple[int, int, int], path: Path, file_format: str, *, dynamic_size: bool
) -> float:
    """Largest absolute difference of logits between a file and its model, over batches and sizes that it must take."""
    channels, height, width = images
    sizes = [(height, width)] * 3
    if dynamic_size:
        assert isinstance(model, VisionTransformer)
        rows, columns = model.patch_embed.patch_size
        sizes += [(height + rows, width + 3 * columns), (2 * rows, 5 * columns)]
    run = _load_onnx(path) if file_format == "onnx" else torch.export.load(path).module()
    generator = torch.Generator().manual_seed(0)
    largest = 0.0
    with torch.no_grad():
        for batch, size in enumerate(sizes, start=1):
            x = torch.randn(batch, channels, *size, generator=generator)
            largest = max(largest, float((model(x) - run(x)).abs().max()))
    return largest


def _load_onnx(path: Path) -> Any:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name

    def run(images: Tensor) -> Tensor:
        return torch.from_numpy(session.run(None, {name: images.numpy()})[0])

    return run
