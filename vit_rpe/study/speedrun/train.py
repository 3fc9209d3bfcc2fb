"""Train one small model for so many seconds, all images on the device, and measure it on the way.

The schedule follows the share of the time that has passed, so the same call uses whatever machine it meets to the end.
Compiling is done before the clock starts, and evaluations do not count. Augmentation is a random cut and mirror image,
drawn on the device, for a whole epoch at a time.

Legend: N images, B of a batch, H and W pixels.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vit_rpe.study.speedrun.packed import Split
from vit_rpe.training.config.schema import TrainConfig
from vit_rpe.training.losses import classification_loss
from vit_rpe.training.optim import make_optimizer
from vit_rpe.training.schedule import Schedule
from vit_rpe.training.session import seed_everything

PADDING = 4


@dataclass(frozen=True)
class Recipe:
    """What is trained, and how.

    Attributes:
        model: a timm name, with ``args``; the encoding is given for each run.
        train: optimiser, rates and schedule; its ``epochs`` only scale ``warmup_epochs``.
        batch_size: images a step.
        seconds: of training, without compiling and evaluations.
        evaluations: how often the test images are looked at, the last time at the end.
        compiled: compile the step.
        precision: bf16, or no for float32.
    """

    model: str
    args: dict[str, Any] = field(default_factory=dict)
    train: TrainConfig = field(default_factory=TrainConfig)
    batch_size: int = 512
    seconds: float = 60.0
    evaluations: int = 10
    compiled: bool = True
    precision: str = "bf16"


class Data(NamedTuple):
    """On the device: images uint8 (N, 3, H, W), labels int64 (N,); mean and std (3,) of the training images, 0..255."""

    images: Tensor
    labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    mean: Tensor
    std: Tensor


class Measured(NamedTuple):
    """One look at the test images: after so many seconds and epochs of training; ``accuracy`` is a share."""

    seconds: float
    epochs: float
    loss: float
    accuracy: float


def to_device(train: Split, test: Split, device: torch.device) -> Data:
    """Both splits on the device."""
    images = torch.from_numpy(train.images).to(device).permute(0, 3, 1, 2).contiguous()
    test_images = torch.from_numpy(test.images).to(device).permute(0, 3, 1, 2).contiguous()
    pixels = images.double()
    mean, std = pixels.mean((0, 2, 3)), pixels.std((0, 2, 3), correction=0)
    labels, test_labels = (torch.from_numpy(split.labels).to(device) for split in (train, test))
    return Data(images, labels, test_images, test_labels, mean.float(), std.float().clamp(min=1.0))


def augmented(images: Tensor, generator: torch.Generator) -> Tensor:
    """Each image cut out of itself with ``PADDING`` mirrored pixels around, at a random place, every other one
    mirrored; (N, 3, H, W) uint8."""
    count, _, height, width = images.shape
    device = images.device
    padded = F.pad(images.float(), (PADDING,) * 4, mode="reflect").to(torch.uint8)
    down, right = torch.randint(2 * PADDING + 1, (2, count), device=device, generator=generator)
    rows = down[:, None] + torch.arange(height, device=device)
    columns = right[:, None] + torch.arange(width, device=device)
    mirrored = torch.rand(count, device=device, generator=generator) < 0.5
    columns = torch.where(mirrored[:, None], columns.flip(1), columns)
    taken = padded.gather(2, rows[:, None, :, None].expand(-1, 3, -1, padded.shape[3]))
    return taken.gather(3, columns[:, None, None, :].expand(-1, 3, height, -1))


def run(rpe: Any, data: Data, recipe: Recipe, report: Callable[[Measured], None]) -> tuple[nn.Module, list[Measured]]:
    """Train the recipe's model with one encoding, and report it as often as the recipe says."""
    seed_everything(recipe.train.seed)
    device = data.images.device
    classes = int(data.labels.max()) + 1
    size = tuple(data.images.shape[2:])
    model = timm.create_model(recipe.model, rpe=rpe, img_size=size, num_classes=classes, **recipe.args).to(device)
    optimizer, schedule = make_optimizer(model, recipe.train), Schedule(recipe.train)
    learn = _step(model, optimizer, data, recipe)
    state = {key: value.clone() for key, value in model.state_dict().items()}
    learn(data.images[: recipe.batch_size], data.labels[: recipe.batch_size])  # compiles
    model.load_state_dict(state)
    optimizer.state.clear()

    generator = torch.Generator(device).manual_seed(recipe.train.seed)
    batches = max(1, len(data.labels) // recipe.batch_size)
    measured: list[Measured] = []
    spent, epochs = 0.0, 0
    while spent < recipe.seconds:
        started, paused = time.perf_counter(), 0.0
        order = torch.randperm(len(data.labels), device=device, generator=generator)
        images = augmented(data.images, generator)
        for batch in range(batches):
            now = spent + time.perf_counter() - started - paused
            share = now / recipe.seconds
            chosen = order[batch * recipe.batch_size : (batch + 1) * recipe.batch_size]
            schedule.apply(optimizer, min(share, 1.0) * recipe.train.epochs)
            loss = learn(images[chosen], data.labels[chosen])
            if share >= 1.0 or share >= (len(measured) + 1) / recipe.evaluations:
                value = float(loss)  # waits for the device
                pause = time.perf_counter()
                now = spent + pause - started - paused
                after = epochs + (batch + 1) / batches
                measured.append(Measured(now, after, value, accuracy(model, data, recipe)))
                report(measured[-1])
                paused += time.perf_counter() - pause
            if share >= 1.0:
                break
        epochs += 1
        spent += time.perf_counter() - started - paused
    if not measured or measured[-1].seconds < recipe.seconds:
        measured.append(Measured(spent, float(epochs), float(loss), accuracy(model, data, recipe)))
        report(measured[-1])
    return model, measured


def _step(
    model: nn.Module, optimizer: torch.optim.Optimizer, data: Data, recipe: Recipe
) -> Callable[[Tensor, Tensor], Tensor]:
    def forward(images: Tensor, labels: Tensor) -> Tensor:
        with _autocast(images.device, recipe):
            logits = model(_normalized(images, data))
        return classification_loss(logits, labels, recipe.train)

    compute = torch.compile(forward) if recipe.compiled else forward

    def learn(images: Tensor, labels: Tensor) -> Tensor:
        model.train()
        loss = compute(images, labels)
        loss.backward()
        if recipe.train.clip_grad is not None:
            nn.utils.clip_grad_norm_(model.parameters(), recipe.train.clip_grad)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return learn


def accuracy(model: nn.Module, data: Data, recipe: Recipe) -> float:
    """Share of the test images that the model gets right."""
    model.eval()
    right = 0
    with torch.inference_mode(), _autocast(data.images.device, recipe):
        chunks = zip(data.test_images.split(recipe.batch_size), data.test_labels.split(recipe.batch_size), strict=True)
        for images, labels in chunks:
            right += int((model(_normalized(images, data)).argmax(1) == labels).sum())
    return right / len(data.test_labels)


def _normalized(images: Tensor, data: Data) -> Tensor:
    return (images.float() - data.mean[:, None, None]) / data.std[:, None, None]


def _autocast(device: torch.device, recipe: Recipe) -> Any:
    return torch.autocast(device.type, torch.bfloat16) if recipe.precision == "bf16" else nullcontext()
