"""Writing a session's checkpoints into its run folder."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from vit_rpe.training.checkpoint.checkpoint import CheckpointInfo, read_info, save_checkpoint
from vit_rpe.training.checkpoint.files import newest, remove, write_folder
from vit_rpe.training.checkpoint.sharding import weights
from vit_rpe.training.checkpoint.state import STATE_FILE, capture
from vit_rpe.training.model import token_grid
from vit_rpe.training.session import Session

__all__ = ["save_best", "save_last"]


def _info(session: Session) -> CheckpointInfo:
    counters = session.counters
    return CheckpointInfo(
        model_name=session.config.model.name,
        model_args=session.model_args,
        class_names=list(session.bundle.class_names),
        preprocessing=session.bundle.treatment.to_dict(),
        grid=token_grid(session.model),
        data=asdict(session.config.data),
        epoch=counters.epoch,
        step=counters.step,
        results=dict(counters.rows[-1]) if counters.rows else {},
        plugins=list(session.config.plugin),
    )


def _published(session: Session) -> dict[str, Tensor]:
    """The weights to publish; every process calls it."""
    return weights(session) if session.ema is None else session.ema.module.state_dict()


def _write(
    session: Session,
    folder: Path,
    published: dict[str, Tensor],
    state: dict[str, Any] | None = None,
    keep_old_as: Path | None = None,
) -> None:
    def fill(place: Path) -> None:
        save_checkpoint(place, published, _info(session))
        if state is not None:
            with (place / STATE_FILE).open("wb") as file:
                torch.save(state, file)

    try:
        write_folder(folder, fill, keep_old_as=keep_old_as)
    except (OSError, RuntimeError, SafetensorError) as error:
        raise RuntimeError(
            f"cannot write the checkpoint {folder}: {error}; what was saved before is untouched, "
            "--resume auto goes on from it"
        ) from error


def save_best(session: Session) -> None:
    """Write ``best/``. Every process calls it; it comes before ``save_last``, so that a run that dies between the
    two makes the same best again."""
    published = _published(session)
    if session.accelerator.is_main_process:
        _write(session, session.folder / "best", published)


def save_last(session: Session) -> None:
    """Write ``last/`` with the training state. Ends of older epochs move to ``history/``, where the newest
    ``train.keep`` - 1 stay."""
    state, published = capture(session), _published(session)
    if not session.accelerator.is_main_process:
        return
    last, history = session.folder / "last", session.folder / "history"
    kept = session.config.train.keep - 1
    before = newest(last)
    old = None if before is None or kept == 0 else read_info(before)
    ended = old is not None and old.step == 0 and old.epoch < session.counters.epoch + bool(session.counters.step)
    _write(session, last, published, state, keep_old_as=history / f"epoch-{old.epoch:04d}" if old and ended else None)
    for folder in sorted(history.glob("epoch-*"))[:-kept] if kept else []:
        remove(folder)
