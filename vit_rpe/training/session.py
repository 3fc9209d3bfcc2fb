"""The parts of a run, built once and handed around together."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType
from timm.utils import ModelEmaV3
from torch import Tensor, nn
from torchmetrics import SumMetric

from vit_rpe.data import (
    BatchMixer,
    DataBundle,
    EvalLoader,
    TrainLoader,
    batch_mixer,
    eval_loader,
    train_loader,
)
from vit_rpe.training.config.schema import RunConfig
from vit_rpe.training.optim import make_optimizer
from vit_rpe.training.schedule import Schedule
from vit_rpe.training.task import Task, task_of
from vit_rpe.training.teacher import Teacher, build_teacher

__all__ = ["Counters", "Meters", "Session", "build_session", "seed_everything"]


@dataclass
class Counters:
    """Where a run stands: epochs done, updates done inside the epoch and in all, the best epoch, the rows so far."""

    epoch: int = 0
    step: int = 0
    updates: int = 0
    best_score: float = -math.inf
    best_epoch: int = 0
    rows: list[dict[str, float]] = field(default_factory=list)


class Meters(nn.Module):
    """Sums over one epoch's training samples on this process: loss, hits, count."""

    def __init__(self) -> None:
        super().__init__()
        self.loss, self.hits, self.count = (_sum_metric() for _ in range(3))

    def update(self, loss: Tensor, hits: Tensor, count: int) -> None:
        """Add a batch: its mean loss, its number of hits, its size."""
        self.loss.update(loss * count)
        self.hits.update(hits)
        self.count.update(count)

    def reset(self) -> None:
        """Start an epoch."""
        for metric in (self.loss, self.hits, self.count):
            metric.reset()

    def totals(self) -> Tensor:
        """(3,): the sums of loss and hits, and the count."""
        return torch.stack([self.loss.compute(), self.hits.compute(), self.count.compute()])


def _sum_metric() -> SumMetric:
    metric = SumMetric(nan_strategy="disable", sync_on_compute=False)
    metric.persistent(True)
    return metric


@dataclass
class Session:
    """Everything the loop works with.

    ``model`` is the plain model and ``wrapped`` the one to call in training (the same parameters); ``ema`` holds the
    averaged weights, if any.
    """

    config: RunConfig
    accelerator: Accelerator
    bundle: DataBundle
    model: nn.Module
    model_args: dict[str, Any]
    wrapped: nn.Module
    optimizer: Any
    schedule: Schedule
    ema: ModelEmaV3 | None
    teacher: Teacher | None
    mixer: BatchMixer | None
    train_batches: TrainLoader
    val_batches: EvalLoader
    folder: Path
    counters: Counters = field(default_factory=Counters)
    meters: Meters = field(default_factory=Meters)

    @property
    def task(self) -> Task:
        """How results are judged and named."""
        return task_of(self.bundle.treatment)

    @property
    def train_words(self) -> str:
        """What accuracy in training is measured on, in words: mixed images are harder than those of the test."""
        return "train" if self.mixer is None else "train on mixed images"

    @property
    def evaluated(self) -> nn.Module:
        """The model whose weights are evaluated and published: the averaged one if there is one."""
        return self.model if self.ema is None else self.ema.module

    @property
    def sharded(self) -> bool:
        """Whether FSDP2 spreads the weights over the processes."""
        return self.accelerator.is_fsdp2

    @property
    def updates_per_epoch(self) -> int:
        """Optimiser updates of a whole epoch; the last one may gather fewer batches."""
        return -(-len(self.train_batches) // self.config.train.accumulate)

    @property
    def epochs_done(self) -> float:
        """How much of the training is done, in epochs: what the schedule and everything shown go by."""
        return self.counters.epoch + self.counters.step / self.updates_per_epoch


def seed_everything(*numbers: int) -> None:
    """Seed Python, NumPy and torch (all devices) from several numbers, such as seed, epoch and process."""
    (seed,) = np.random.SeedSequence(numbers).generate_state(1, np.uint64)
    random.seed(int(seed))
    np.random.seed(int(seed) % 2**32)  # noqa: NPY002 - what timm draws from
    torch.manual_seed(int(seed) % 2**63)


def build_session(
    config: RunConfig,
    accelerator: Accelerator,
    bundle: DataBundle,
    model: nn.Module,
    model_args: dict[str, Any],
    folder: Path,
) -> Session:
    """Put a run together. The order matters: averaged copy before wrappers, parameter groups from the plain model."""
    train, device = config.train, accelerator.device
    model.to(device)
    if train.grad_checkpointing:
        model.set_grad_checkpointing(True)  # type: ignore[operator]
    ema = None
    if train.ema_decay is not None:
        if accelerator.distributed_type == DistributedType.FSDP:
            raise ValueError("train.ema_decay keeps a whole copy of the weights, which FSDP spreads: set it to null")
        ema = ModelEmaV3(model, decay=train.ema_decay, use_warmup=train.ema_warmup)
    optimizer = make_optimizer(model, train)
    if train.compile:
        model.compile()
    wrapped, prepared = accelerator.prepare(model, optimizer)
    place = {"rank": accelerator.process_index, "world_size": accelerator.num_processes}
    batches = train_loader(bundle, config.data, seed=train.seed, **place)
    mixer = batch_mixer(config.data, num_classes=bundle.num_classes, label_smoothing=train.label_smoothing)
    last = len(bundle.train) % (config.data.batch_size * accelerator.num_processes) // accelerator.num_processes
    if mixer is not None and not config.data.drop_last and last % 2:
        raise ValueError(
            f"data.drop_last=false leaves a last batch of {last} images, which cannot be mixed in pairs: leave "
            "data.drop_last out, or set data.mixup and data.cutmix to 0"
        )
    session = Session(
        config=config,
        accelerator=accelerator,
        bundle=bundle,
        model=model,
        model_args=model_args,
        wrapped=wrapped,
        optimizer=prepared,
        schedule=Schedule(train),
        ema=ema,
        teacher=build_teacher(train.distill, class_names=bundle.class_names, student=bundle.treatment, device=device),
        mixer=mixer,
        train_batches=batches,
        val_batches=eval_loader(bundle, config.data, **place),
        folder=folder,
    )
    session.meters.to(device)
    return session
