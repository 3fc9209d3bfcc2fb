"""A whole run: from a checked config to a filled run folder."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list

from vit_rpe.data import Account, DataBundle, build_data
from vit_rpe.training.checkpoint.belonging import check_classes, check_vocabulary, check_weights_of_state
from vit_rpe.training.checkpoint.files import write_text
from vit_rpe.training.checkpoint.resume import Resumed, changes, find_resumed, rate_jump
from vit_rpe.training.checkpoint.run_folder import forget_run, take_best_along, write_versions
from vit_rpe.training.checkpoint.state import restore
from vit_rpe.training.config.schema import RunConfig
from vit_rpe.training.config.yaml_text import dump_yaml
from vit_rpe.training.loop import evaluate_session, fit
from vit_rpe.training.metrics import Evaluation
from vit_rpe.training.model import ModelPlan, build_model, plan_model, token_grid
from vit_rpe.training.reporting.display import Display
from vit_rpe.training.reporting.pictures import draw_pictures
from vit_rpe.training.reporting.text_samples import written_samples
from vit_rpe.training.reporting.trackers import check_trackers, start_trackers
from vit_rpe.training.session import Session, build_session, seed_everything

__all__ = ["RunResult", "train"]

_MANY_TOKENS = 1024
_MUCH_LARGER, _MUCH_SMALLER = 2, 8


@dataclass(frozen=True)
class RunResult:
    """The run folder, and the evaluation of the final weights (those in ``last/``)."""

    folder: Path
    evaluation: Evaluation


def train(config: RunConfig) -> RunResult:
    """Train, resume or finish a run.

    Args:
        config: a checked config with ``output`` set; see ``parse_config``.

    Returns:
        Where the results lie, and how good the final weights are.

    Raises:
        ValueError: the config, the data or the checkpoint do not fit together.
        RuntimeError: the loss is not finite, or a checkpoint cannot be written.
        Interrupted: a signal came; the run can be resumed.
    """
    check_trackers(config.trackers)
    plan = plan_model(config.model, config.data)
    accelerator = _accelerator(config)
    (output,) = broadcast_object_list([config.output])
    config.output, folder = output, Path(output)
    resumed = find_resumed(config, folder)
    seed_everything(config.train.seed)
    display = Display(folder / "log.txt", quiet=not accelerator.is_main_process)
    with _warnings_on(display):
        with accelerator.main_process_first():  # which downloads, if asked to
            bundle = build_data(config.data, img_size=plan.img_size, in_chans=plan.in_chans, seed=config.train.seed)
        _check_data(bundle, config)
        if resumed is not None:
            _check_data_of(resumed, bundle)
        elif accelerator.is_main_process:
            forget_run(folder)
            _open_folder(folder, config, bundle.account)
        model, model_args = build_model(plan, config.model, bundle)
        if resumed is not None:
            check_weights_of_state(model, resumed.state, asdict(config))
        session = build_session(config, accelerator, bundle, model, model_args, folder)
        _announce(session, plan, display)
        inside = None  # of an unfinished epoch that goes on as it would have
        if resumed is not None:
            inside = resumed.state if restore(session, resumed.state) else None
            if accelerator.is_main_process:  # not before: what cannot go on keeps its folder as it is
                _open_folder(folder, config, bundle.account)
                if config.resume != "auto":
                    take_best_along(Path(str(config.resume)), folder)
            _announce_resumed(session, resumed.state, display)
        start_trackers(accelerator, config)
        try:
            fit(session, display, inside)
            result = evaluate_session(session, confusion=bundle.num_classes <= 100)
        except Exception as error:
            display.keep(f"stopped: {type(error).__name__}: {error}")
            raise
        _finish(session, result, display)
    accelerator.end_training()
    return RunResult(folder, result)


def _check_data(bundle: DataBundle, config: RunConfig) -> None:
    """Refuse before training what would end in a message of a metric or a picture after it."""
    if bundle.num_classes < 2:
        raise ValueError(f"{bundle.split}: there is only the class {bundle.class_names}, nothing to tell apart")
    if config.train.pictures_every and not bundle.treatment.shows_pictures:
        raise ValueError("train.pictures_every draws attention over images, and these data are none: leave it out")


def _check_data_of(resumed: Resumed, bundle: DataBundle) -> None:
    """Refuse to go on with data whose labels or tokens mean something else than they did."""
    names = {"of": "the data", "by": "the checkpoint to resume"}
    check_vocabulary(bundle.treatment.to_dict(), resumed.info.preprocessing, **names)
    check_classes(bundle.class_names, resumed.info.class_names, **names)


def _accelerator(config: RunConfig) -> Accelerator:
    train = config.train
    on_cpu = train.device == "cpu" or not torch.accelerator.is_available()
    if train.precision == "fp16" and on_cpu:
        raise ValueError("train.precision fp16 needs a GPU; on the CPU use bf16 or no")
    return Accelerator(
        mixed_precision=train.precision,
        cpu=on_cpu,  # else two processes without an accelerator would be two runs
        log_with=config.trackers or None,
        project_dir=config.output,
    )


def _open_folder(folder: Path, config: RunConfig, account: Account) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        plain = {**asdict(config), "resume": None, "overwrite": False}
        write_text(folder / "config.yaml", dump_yaml(_listed(plain)))
        write_text(folder / "data.json", json.dumps(account.to_dict(), indent=2) + "\n")
        write_versions(folder)
    except OSError as error:
        raise RuntimeError(f"cannot write the run folder {folder}: {error}") from error


def _listed(value: Any) -> Any:
    """Tuples as lists, so that the YAML is plain."""
    if isinstance(value, dict):
        return {key: _listed(item) for key, item in value.items()}
    return [_listed(item) for item in value] if isinstance(value, (list, tuple)) else value


@contextmanager
def _warnings_on(display: Display) -> Iterator[None]:
    """Show our own warnings as one line each, and keep them in the log."""
    before = warnings.showwarning

    def show(message, category, filename, lineno, file=None, line=None):
        if issubclass(category, UserWarning) and "vit_rpe" in filename:
            display.say(f"warning: {message}")
        else:
            before(message, category, filename, lineno, file, line)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = before


def _announce(session: Session, plan: ModelPlan, display: Display) -> None:
    config, accelerator = session.config, session.accelerator
    weights = sum(parameter.numel() for parameter in session.model.parameters())
    rpe = "" if config.model.rpe is None else f", rpe {config.model.rpe}"
    batch = config.data.batch_size * config.train.accumulate * accelerator.num_processes
    display.say(f"model   {plan.name}{rpe}: {weights:,} weights, {plan.takes}{_tokens(session)}")
    display.say(f"data    {session.bundle.split}")
    display.say(f"        {session.bundle.account.words()}")
    display.say(
        f"batch   {batch} = {config.data.batch_size} samples x {config.train.accumulate} per update x "
        f"{accelerator.num_processes} process(es) on {accelerator.device}; "
        f"{session.updates_per_epoch} updates per epoch, {config.train.epochs} epochs"
    )
    far = _far_from_native(session)
    if far is not None:
        display.say(f"warning: {far}")
    display.say(f"output  {session.folder}")
    if config.train.warmup_epochs >= config.train.epochs and config.train.schedule != "none":
        display.say(
            f"warning: train.warmup_epochs {config.train.warmup_epochs:g} is not less than train.epochs "
            f"{config.train.epochs}: the learning rate never reaches train.lr"
        )
    elif session.schedule.never_changes():
        display.say(
            f"warning: within {config.train.epochs} epochs the {config.train.schedule} schedule never changes the rate"
        )


def _far_from_native(session: Session) -> str | None:
    """A sentence if the model takes images of quite another size than the first one of the source has."""
    if not session.bundle.treatment.shows_pictures:
        return None
    try:
        native = session.bundle.train.native_size()  # type: ignore[attr-defined]
    except ValueError:  # an image that cannot be read is counted by the loaders
        return None
    size = session.bundle.treatment.size
    factor = math.sqrt(math.prod(size) / math.prod(native))
    if 1 / _MUCH_SMALLER <= factor < _MUCH_LARGER:
        return None
    how = f"enlarged {factor:.1f} times" if factor > 1 else f"reduced {1 / factor:.1f} times"
    return (
        f"the images are {native[0]}x{native[1]} pixels (the first one) and are {how} to {size[0]}x{size[1]}; "
        "--model.img_size sets another size"
    )


def _tokens(session: Session) -> str:
    """How many tokens attention is over, with a warning where that will be slow."""
    grid = token_grid(session.model)
    if grid is None:
        return ""
    count = math.prod(grid)
    slow = f" (many: each layer compares {count**2:,} pairs; a larger patch is faster)" if count > _MANY_TOKENS else ""
    return f", {'x'.join(map(str, grid))} = {count:,} tokens{slow}"


def _announce_resumed(session: Session, state: dict[str, Any], display: Display) -> None:
    counters = session.counters
    inside = f", update {counters.step} of {session.updates_per_epoch} of the next" if counters.step else ""
    display.say(f"resumed after epoch {counters.epoch}{inside}; {counters.updates} updates are done")
    phrases = changes(session.config, state, processes=session.accelerator.num_processes)
    jump = rate_jump(session.config, state, epochs_done=session.epochs_done)
    for text in [*phrases, *([jump] if jump else [])]:
        display.say(f"warning: {text}")


def _finish(session: Session, result: Evaluation, display: Display) -> None:
    counters, folder, held_out = session.counters, session.folder, session.bundle.held_out
    if session.accelerator.is_main_process:
        notes = draw_pictures(session, result) if session.config.pictures else []
        for text in [*notes, *written_samples(session)]:
            display.say(text)
    bad = session.bundle.bad_images.summary()
    if bad:
        display.say(bad)
    display.say(f"split         {session.bundle.split}")
    if counters.best_epoch and (folder / "best").is_dir():
        display.say(
            f"best epoch    {counters.best_epoch}, {session.task.words(counters.best_score, held_out)}, in "
            f"{folder / 'best'} (chosen on the {held_out} {session.task.unit} themselves)"
        )
    if session.config.pictures:
        display.say(f"pictures      {folder / 'pictures'}")
    display.say(f"evaluate      vit-rpe evaluate --checkpoint {folder / 'last'}")
    display.say(session.task.words(session.task.score(result), held_out))
