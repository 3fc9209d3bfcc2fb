"""The training loop: epochs of updates, an evaluation and a checkpoint after each."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from copy import deepcopy
from functools import partial
from itertools import islice

import torch
from torch import Tensor

from vit_rpe.training.checkpoint.run_folder import write_metrics
from vit_rpe.training.checkpoint.save import save_best, save_last
from vit_rpe.training.checkpoint.sharding import batches_of_every_process
from vit_rpe.training.checkpoint.state import random_state, restore_inside_epoch, set_random_state
from vit_rpe.training.interrupt import Interrupt
from vit_rpe.training.losses import classification_loss, distillation_loss
from vit_rpe.training.metrics import Evaluation, NoAnswerError, evaluate
from vit_rpe.training.reporting.display import Display
from vit_rpe.training.reporting.pictures import draw_progress
from vit_rpe.training.reporting.trackers import log_pictures
from vit_rpe.training.session import Session, seed_everything

__all__ = ["Interrupted", "evaluate_session", "fit"]

_NEVER = 2**62


class Interrupted(Exception):
    """A signal stopped the run after a checkpoint; ``number`` is the signal's."""

    def __init__(self, name: str, number: int) -> None:
        super().__init__(name)
        self.number = number


def evaluate_session(
    session: Session, *, confusion: bool = False, between: Callable[[int], None] = lambda batch: None
) -> Evaluation:
    """Evaluate the weights that are published, on the held-out samples; ``between`` is called before each batch."""

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        for number, batch in enumerate(session.val_batches):
            between(number)
            yield batch

    return evaluate(
        session.evaluated,
        batches(),
        prepare=lambda images: session.bundle.to_device_batch(images, session.accelerator.device),
        num_classes=session.bundle.num_classes,
        device=session.accelerator.device,
        autocast=session.accelerator.autocast,
        confusion=confusion,
        calls=batches_of_every_process(session) if session.sharded else 0,
    )


def _loss(session: Session, images: Tensor, labels: Tensor, batch: int) -> tuple[Tensor, Tensor]:
    """Loss and number of hits of one batch (inputs as the model takes them, labels), on the device."""
    config = session.config.train
    target = labels = labels.flatten()  # one a row of logits, also where each token has its own
    if session.mixer is not None:
        place = {"epoch": session.counters.epoch, "batch": batch, "rank": session.accelerator.process_index}
        images, target = session.mixer(images, labels, seed=config.seed, **place)
    logits = session.wrapped(images).flatten(0, -2)
    loss = classification_loss(logits, target, config)
    if session.teacher is not None:
        with session.accelerator.autocast():
            guide = session.teacher(images)
        weight = config.distill.weight
        loss = (1 - weight) * loss + weight * distillation_loss(logits, guide, config.distill)
    hits = (logits.detach().argmax(dim=1) == labels).sum()
    return loss, hits


def _update(
    session: Session, group: list[tuple[Tensor, Tensor]], first_batch: int, after: Callable[[int], None]
) -> Tensor:
    """One optimiser update over a group of batches; each sample weighs the same, also in a short last group.

    ``after`` is called with the number of batches that are done, before the update itself.
    """
    accelerator, config = session.accelerator, session.config.train
    total = sum(labels.numel() for _, labels in group)
    whole = torch.zeros((), device=accelerator.device)
    for index, (raw, labels) in enumerate(group):
        images = session.bundle.to_device_batch(raw, accelerator.device)
        labels = labels.to(accelerator.device)
        last = index == len(group) - 1
        with nullcontext() if last else accelerator.no_sync(session.wrapped):
            loss, hits = _loss(session, images, labels, first_batch + index)
            accelerator.backward(loss * (labels.numel() / total))
        whole += loss.detach() * (labels.numel() / total)
        session.meters.update(loss.detach(), hits, labels.numel())
        after(index + 1)
    if config.clip_grad is not None:
        accelerator.clip_grad_norm_(session.wrapped.parameters(), config.clip_grad)
    session.optimizer.step()
    session.optimizer.zero_grad()
    return whole


def _groups(session: Session) -> Iterator[list[tuple[Tensor, Tensor]]]:
    batches = iter(session.train_batches)
    while group := list(islice(batches, session.config.train.accumulate)):
        yield group


def _refuse_nan(session: Session, first_bad: Tensor) -> None:
    step = int(session.accelerator.gather(first_bad.reshape(1)).min())
    if step < _NEVER:
        raise RuntimeError(
            f"the loss is not finite at update {step} (epoch {session.counters.epoch + 1}); stopped, nothing of this "
            "epoch is saved. A lower train.lr, train.clip_grad or a longer warm-up may help"
        )


def _asked_to_stop(session: Session, interrupt: Interrupt, *, due: bool) -> bool:
    """Whether any process got a signal; several processes ask each other only when ``due``."""
    mine = interrupt.received is not None
    if session.accelerator.num_processes == 1 or not due:
        return mine and session.accelerator.num_processes == 1
    flag = torch.tensor([int(mine)], device=session.accelerator.device)
    return bool(session.accelerator.gather(flag).max())


class _GivenUp(Exception):
    """An update was left before its last batch, because a signal came."""


def _train_epoch(session: Session, display: Display, interrupt: Interrupt, resumed: dict | None) -> float:
    """The rest of the current epoch. Returns labels per second over all processes."""
    config, counters, accelerator = session.config.train, session.counters, session.accelerator
    behind = min(counters.step * config.accumulate, len(session.train_batches))  # the last update may gather fewer
    session.train_batches.set_position(counters.epoch, behind)
    groups = _groups(session)
    if counters.step and resumed is not None:
        restore_inside_epoch(session, resumed)
    else:
        session.meters.reset()
        seed_everything(config.seed, counters.epoch, accelerator.process_index)
    session.wrapped.train()
    first_bad = torch.full((), _NEVER, dtype=torch.int64, device=accelerator.device)
    started, seen, rate = time.perf_counter(), 0, 0.0

    def after(batches: int) -> None:
        if display.due():
            labels = seen + sum(labels.numel() for _, labels in group[:batches]) * accelerator.num_processes
            _show(session, display, rate=rate, speed=labels / (time.perf_counter() - started))
        if batches < len(group) and interrupt.received is not None and accelerator.num_processes == 1:
            raise _GivenUp

    for group in groups:
        rate = session.schedule.apply(session.optimizer, session.epochs_done)
        before = (random_state(), deepcopy(session.meters.state_dict())) if len(group) > 1 else None
        try:
            loss = _update(session, group, counters.step * config.accumulate, after)
        except _GivenUp:
            _take_back(session, *before)  # type: ignore[misc]
            save_last(session)
            _raise_interrupted(interrupt)
        counters.step += 1
        counters.updates += 1
        seen += sum(labels.numel() for _, labels in group) * accelerator.num_processes
        if session.ema is not None:
            session.ema.update(session.model, step=counters.updates)
        first_bad = torch.where(loss.isfinite(), first_bad, first_bad.clamp(max=counters.updates))
        due = counters.updates % config.log_every == 0
        save_due = config.checkpoint_every_steps and counters.step % config.checkpoint_every_steps == 0
        inside = counters.step < session.updates_per_epoch
        if due or (save_due and inside):
            _refuse_nan(session, first_bad)
        if due and accelerator.is_main_process:
            _show(session, display, rate=rate, speed=seen / (time.perf_counter() - started))
        stop = inside and _asked_to_stop(session, interrupt, due=due)
        if (save_due and inside) or stop:
            _refuse_nan(session, first_bad)
            save_last(session)
        if stop:
            _raise_interrupted(interrupt)
    _refuse_nan(session, first_bad)
    return seen / (time.perf_counter() - started)


def _take_back(session: Session, random: dict, meters: dict) -> None:
    """Leave no trace of the batches of an update that was not made."""
    session.optimizer.zero_grad()
    set_random_state(random)
    session.meters.load_state_dict(meters)


def _show(session: Session, display: Display, *, rate: float, speed: float) -> None:
    """The numbers of the epoch so far, for the bar and the log."""
    counters, config, task = session.counters, session.config.train, session.task
    loss_sum, hits, count = session.meters.totals().tolist()
    display.show(
        f"epoch {counters.epoch + 1}/{config.epochs}  update {counters.step}/{session.updates_per_epoch}"
        f"  loss {loss_sum / count:.3f}  {session.train_words} {hits / count:.1%}  lr {rate:.1e}"
        f"  {speed:.0f} {task.unit}/s",
        **_progress(session),
    )


def _progress(session: Session) -> dict[str, int]:
    """Updates that are done and that there are, of the whole run."""
    each = session.updates_per_epoch
    done = session.counters.epoch * each + session.counters.step
    return {"done": done, "total": session.config.train.epochs * each}


def _raise_interrupted(interrupt: Interrupt) -> None:
    received = interrupt.received
    raise Interrupted("another process" if received is None else received.name, received or 15)


def _row(session: Session, result: Evaluation, *, rate: float, speed: float, seconds: float) -> dict[str, float]:
    loss, hits, count = session.accelerator.reduce(session.meters.totals(), "sum").tolist()
    return {
        "epoch": session.counters.epoch + 1,
        "lr": rate,
        "train_loss": loss / count,
        f"train_accuracy{'' if session.mixer is None else '_on_mixed_images'}": hits / count,
        "test_loss": result.loss,
        "test_accuracy": result.top1,
        "test_top5": result.top5,
        **{f"test_{name}": value for name, value in session.task.more(result).items()},
        f"{session.task.unit}_per_second": round(speed, 1),
        "seconds": round(seconds, 3),
    }


def fit(session: Session, display: Display, resumed: dict | None = None) -> None:
    """Train up to ``train.epochs``, leaving ``metrics.csv``, ``best/`` and ``last/`` after every epoch.

    Args:
        session: the run, restored if it is resumed.
        display: what is shown.
        resumed: the state it was restored from, if an unfinished epoch goes on with the very batches it had left.

    Raises:
        RuntimeError: the loss is not finite, or a checkpoint cannot be written.
        Interrupted: a signal came; ``last/`` holds the state at the update it came at.
    """
    config, counters = session.config.train, session.counters
    with display, Interrupt() as interrupt:
        while counters.epoch < config.epochs:
            started = time.perf_counter()
            rate = session.schedule.rate(counters.epoch)  # of the epoch's first update
            speed = _train_epoch(session, display, interrupt, resumed)
            try:
                result = evaluate_session(session, between=partial(_between_evaluations, session, display, interrupt))
            except NoAnswerError:
                result = None
            if result is None or not math.isfinite(result.loss):
                raise RuntimeError(
                    f"the {session.bundle.held_out} loss is not finite after update {counters.updates} (epoch "
                    f"{counters.epoch + 1}); stopped, nothing of this epoch is saved"
                )
            row = _row(session, result, rate=rate, speed=speed, seconds=time.perf_counter() - started)
            _finish_epoch(session, row, session.task.score(result))
            _report(session, display, row, result)
            _draw(session, display)
            if _asked_to_stop(session, interrupt, due=True) and counters.epoch < config.epochs:
                _raise_interrupted(interrupt)


def _between_evaluations(session: Session, display: Display, interrupt: Interrupt, batch: int) -> None:
    """Show how far an evaluation is, and stop in it if asked: the epoch's updates are saved, to be evaluated again."""
    if display.due():
        words = f"epoch {session.counters.epoch + 1}/{session.config.train.epochs}"
        words += f"  {session.bundle.held_out} batch {batch + 1}/{len(session.val_batches)}"
        display.show(words, **_progress(session))
    if interrupt.received is not None and session.accelerator.num_processes == 1:
        save_last(session)
        _raise_interrupted(interrupt)


def _draw(session: Session, display: Display) -> None:
    """Attention and learned bias every so many epochs, into the run folder and to the trackers."""
    every = session.config.train.pictures_every
    if not every or session.counters.epoch % every or not session.accelerator.is_main_process:
        return
    pictures, notes = draw_progress(session)
    for note in notes:
        display.say(note)
    log_pictures(session.accelerator, pictures, step=session.counters.epoch)


def _finish_epoch(session: Session, row: dict[str, float], score: float) -> None:
    """Count the epoch and write it down; the best is judged by the task, the earlier epoch wins a tie."""
    counters = session.counters
    counters.epoch, counters.step = counters.epoch + 1, 0
    counters.rows = [*counters.rows, row]
    if session.accelerator.is_main_process:
        write_metrics(session.folder, counters.rows)
    if score > counters.best_score:
        counters.best_score, counters.best_epoch = score, counters.epoch
        save_best(session)
    save_last(session)


def _report(session: Session, display: Display, row: dict[str, float], result: Evaluation) -> None:
    unit = session.task.unit
    more = "".join(f"  {name} {value:.3f}" for name, value in session.task.more(result).items())
    (accuracy,) = (value for name, value in row.items() if name.startswith("train_accuracy"))
    display.say(
        f"epoch {session.counters.epoch:3d}/{session.config.train.epochs}  loss {row['train_loss']:.4f}"
        f"  {session.train_words} {accuracy:7.2%}  {session.bundle.held_out} {row['test_accuracy']:7.2%}{more}"
        f"  lr {row['lr']:.2e}"
        f"  {row[f'{unit}_per_second']:.0f} {unit}/s"
    )
    numbers = {key: value for key, value in row.items() if key != "epoch"}
    session.accelerator.log(numbers, step=session.counters.epoch)
