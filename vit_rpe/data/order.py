"""Which samples make up which batch, on which process: a pure function of (seed, epoch).

Training: one permutation of all samples per epoch, equal on every process; step k of ``world_size`` processes
takes the k-th stretch of ``world_size * batch_size`` samples and every process its own part of it, so the
samples of a step do not depend on how many processes share it. Evaluation: every sample once over all
processes, in order.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from torch.utils.data import Sampler

from vit_rpe.data.draws import key_number

__all__ = ["EvalOrder", "TrainOrder"]


class TrainOrder(Sampler):
    """Batches of (epoch, sample number) keys, from ``first_batch`` of ``epoch`` on."""

    def __init__(
        self,
        num_samples: int,
        *,
        batch_size: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        drop_last: bool = True,
    ):
        together = batch_size * world_size
        if num_samples < (together if drop_last else world_size):
            raise ValueError(
                f"{num_samples} training samples do not fill one batch: data.batch_size={batch_size} "
                f"on {world_size} process(es); lower it"
            )
        self.num_samples = num_samples
        self.batch_size = batch_size
        self.seed = seed
        self.rank = rank
        self.world_size = world_size
        self.drop_last = drop_last
        self.epoch = 0
        self.first_batch = 0

    @property
    def num_batches(self) -> int:
        """Batches of a whole epoch, equal on every process."""
        together = self.batch_size * self.world_size
        rest = 0 if self.drop_last else (self.num_samples % together) // self.world_size
        return self.num_samples // together + (rest > 0)

    def __len__(self) -> int:
        return self.num_batches - self.first_batch

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        generator = np.random.default_rng(key_number("order", self.seed, self.epoch))
        order = generator.permutation(self.num_samples)
        together = self.batch_size * self.world_size
        for batch in range(self.first_batch, self.num_batches):
            stretch = order[batch * together : (batch + 1) * together]
            each = len(stretch) // self.world_size
            own = stretch[self.rank * each : (self.rank + 1) * each]
            yield [(self.epoch, int(index)) for index in own]


class EvalOrder(Sampler):
    """Batches of sample numbers: this process's ``rank, rank + world_size, ...``; the last batch may be
    smaller.
    """

    def __init__(self, num_samples: int, *, batch_size: int, rank: int = 0, world_size: int = 1):
        self.own = range(rank, num_samples, world_size)
        self.batch_size = batch_size

    def __len__(self) -> int:
        return -(-len(self.own) // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        for start in range(0, len(self.own), self.batch_size):
            yield list(self.own[start : start + self.batch_size])
