"""Loaders: torch's ``DataLoader`` behind an order that can start anywhere.

A batch is ``(inputs, labels)``: images uint8 (B, C, H, W) and int64 (B,), or tokens (B, L). Images stay
eight-bit until they are on the device (a quarter of the bytes to move); ``DataBundle.to_device_batch`` normalises
them there. Loaders
draw nothing from torch's global random state, so loading never changes a model's dropout.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from vit_rpe.checks import check_count
from vit_rpe.data.account import BadImages
from vit_rpe.data.batch import Samples
from vit_rpe.data.options import DataOptions
from vit_rpe.data.order import EvalOrder, TrainOrder

if TYPE_CHECKING:
    from vit_rpe.data.bundle import DataBundle

__all__ = ["EvalLoader", "TrainLoader", "eval_loader", "train_loader"]


class TrainLoader:
    """Batches of one epoch on one process; ``len`` is the number of batches of a whole epoch."""

    def __init__(self, samples: Samples, order: TrainOrder, config: DataOptions, bad: BadImages):
        self.order = order
        self._bad = bad
        self._batches = _data_loader(samples, order, config)

    def __len__(self) -> int:
        return self.order.num_batches

    def set_epoch(self, epoch: int) -> None:
        """Iterate over ``epoch`` (from 0) next, from its start."""
        self.set_position(epoch, 0)

    def set_position(self, epoch: int, batch: int) -> None:
        """Iterate over ``epoch`` next, from ``batch`` on: the batches are those of the unbroken epoch."""
        check_count("epoch", epoch, 0)
        check_count("batch", batch, 0)
        if not 0 <= batch <= self.order.num_batches:
            raise ValueError(f"batch={batch}, expected 0..{self.order.num_batches}")
        self.order.epoch, self.order.first_batch = epoch, batch

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in self._batches:
            self._bad.add(batch.bad)
            if not len(batch.labels):
                raise ValueError(f"no training image left to fill a batch; {self._bad.summary()}")
            yield batch.inputs, batch.labels


class EvalLoader:
    """This process's share of the samples, each once; shares may differ by one sample, also in their batch
    count.
    """

    def __init__(self, samples: Samples, order: EvalOrder, config: DataOptions, bad: BadImages):
        self._order = order
        self._bad = bad
        self._batches = _data_loader(samples, order, config)

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        empty = len(self) > 0
        for batch in self._batches:
            self._bad.add(batch.bad)
            if len(batch.labels):
                empty = False
                yield batch.inputs, batch.labels
        if empty:
            raise ValueError(f"nothing left to evaluate on; {self._bad.summary()}")


def train_loader(
    bundle: DataBundle, config: DataOptions, *, seed: int, rank: int = 0, world_size: int = 1
) -> TrainLoader:
    """The training loader of process ``rank``; ``seed`` must be equal on every process."""
    order = TrainOrder(
        len(bundle.train),
        batch_size=config.batch_size,
        seed=seed,
        rank=rank,
        world_size=world_size,
        drop_last=config.drop_last,
    )
    return TrainLoader(bundle.train, order, config, bundle.bad_images)


def eval_loader(bundle: DataBundle, config: DataOptions, *, rank: int = 0, world_size: int = 1) -> EvalLoader:
    """The validation loader of process ``rank``."""
    batch_size = config.eval_batch_size or config.batch_size
    order = EvalOrder(len(bundle.val), batch_size=batch_size, rank=rank, world_size=world_size)
    return EvalLoader(bundle.val, order, config, bundle.bad_images)


def _whole(batch: Any) -> Any:
    return batch


def _one_thread(worker: int) -> None:
    """Loader processes share the cores between them; OpenCV's own threads would only compete."""
    if "cv2" in sys.modules:
        sys.modules["cv2"].setNumThreads(0)


def _data_loader(samples: Samples, order: TrainOrder | EvalOrder, config: DataOptions) -> DataLoader:
    workers: dict[str, Any] = {}
    if config.num_workers:
        workers = {
            "persistent_workers": config.persistent_workers,
            "prefetch_factor": config.prefetch_factor,
            "multiprocessing_context": config.start_method,
            "worker_init_fn": _one_thread,
        }
    return DataLoader(
        samples,  # type: ignore[arg-type]
        batch_sampler=order,
        collate_fn=_whole,
        num_workers=config.num_workers,
        pin_memory=config.pin_memory and torch.cuda.is_available(),
        generator=torch.Generator(),
        **workers,
    )
