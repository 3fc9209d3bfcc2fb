"""Every option of training changes something beside the others that are given, or is refused: none is passed over."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import timm.optim
import torch
from torch import nn

from vit_rpe.training.config.check import SCHEDULES, check_config
from vit_rpe.training.config.parse import parse_config
from vit_rpe.training.config.schema import DistillConfig, RunConfig, TrainConfig
from vit_rpe.training.loop import _loss
from vit_rpe.training.optim import make_optimizer
from vit_rpe.training.schedule import Schedule

OTHER = {
    "weight_decay": 0.6,
    "momentum": 0.5,
    "betas": (0.5, 0.6),
    "warmup_epochs": 2.0,
    "warmup_lr": 1e-4,
    "min_lr": 1e-4,
    "loss": "bce",
    "label_smoothing": 0.4,
    "distill.weight": 0.3,
    "distill.temperature": 3.0,
    "distill.hard": True,
    "distill.pretrained": True,
    "distill.checkpoint": "weights.pt",
    "ema_warmup": False,
}
"""Another value than the default of every option that may have no effect."""
ELSEWHERE = {
    "epochs", "seed", "optimizer", "lr", "layer_decay", "position_lr", "schedule", "clip_grad", "accumulate",
    "ema_decay", "distill", "distill.teacher", "precision", "device", "compile", "grad_checkpointing",
    "checkpoint_every_steps", "keep", "log_every", "pictures_every",
}  # fmt: skip
"""Options that always have one, or that the model or device refuses; other files test them."""
NO_STEP = ("bnb", "fused", "adahessian")
"""Optimisers that need a GPU, or second derivatives."""


def _with(train: TrainConfig, option: str) -> TrainConfig:
    section, _, name = option.rpartition(".")
    if section:
        return replace(train, distill=replace(train.distill, **{name: OTHER[option]}))
    return replace(train, **{option: OTHER[option]})


def _trained(train: TrainConfig) -> list[torch.Tensor]:
    """Weights after a few updates."""
    torch.manual_seed(0)
    model = nn.Linear(5, 6)
    optimizer = make_optimizer(model, train)
    for number in range(12):
        noise = torch.Generator().manual_seed(number)
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=noise)
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


def _rates(train: TrainConfig) -> list[float]:
    schedule = Schedule(train)
    return [schedule.rate(done / 8) for done in range(8 * train.epochs)]


def _losses(train: TrainConfig) -> list[torch.Tensor]:
    """The loss of a batch as the loop makes it, with a made-up teacher where one is named."""
    noise = torch.Generator().manual_seed(0)
    images, guide = (torch.randn(6, 4, generator=noise) for _ in range(2))
    session: Any = SimpleNamespace(
        config=RunConfig(train=train),
        mixer=None,
        wrapped=lambda images: images,
        teacher=None if train.distill.teacher is None else lambda images: guide,
        accelerator=SimpleNamespace(autocast=lambda: torch.autocast("cpu", enabled=False)),
        counters=None,
    )
    return [_loss(session, images, torch.tensor([0, 1, 2, 3, 0, 1]), 0)[0]]


def _cells() -> Iterator[Any]:
    for name in timm.optim.list_optimizers():
        if not name.startswith(NO_STEP):
            marks = () if name in ("adamw", "sgd", "muon", "adan", "adagrad") else pytest.mark.exhaustive
            for option in ("momentum", "betas", "weight_decay"):
                base = TrainConfig(optimizer=name, lr=0.01)
                yield pytest.param(_trained, base, option, id=f"{name}-{option}", marks=marks)
    for name in SCHEDULES:
        for warmup in (0, 1.5):
            for option in ("warmup_epochs", "warmup_lr", "min_lr"):
                if (name, warmup) not in (("rsqrt", 0), ("none", 1.5)):  # one needs a warm-up, one has none
                    base = TrainConfig(epochs=8, schedule=name, warmup_epochs=warmup)
                    yield pytest.param(_rates, base, option, id=f"{name}-{warmup}-{option}")
    teacher = DistillConfig(teacher="resnet18", pretrained=True)
    sides = {
        "alone": DistillConfig(),
        "soft": teacher,
        "hard": replace(teacher, hard=True),
        "all": replace(teacher, weight=1.0),
        "nothing": replace(teacher, weight=0.0),
    }
    for name, distill in sides.items():
        for option in ("loss", "label_smoothing", "distill.weight", "distill.temperature", "distill.hard"):
            yield pytest.param(_losses, TrainConfig(distill=distill), option, id=f"{name}-{option}")


@pytest.mark.filterwarnings("ignore")  # what an optimiser of timm's says of its own making
@pytest.mark.parametrize(("observe", "base", "option"), list(_cells()))
def test_an_option_changes_something_or_is_refused(observe: Any, base: TrainConfig, option: str) -> None:
    changed = _with(base, option)
    if changed == base:
        pytest.skip(reason="this side of the comparison has the value already")
    said = _refusal(changed)
    assert f"train.{option}" in (said or f"train.{option}"), said
    if said is None or "no effect" in said:  # else it is not to be tried: a number of betas that is not taken
        assert _alike(observe(base), observe(changed)) == (said is not None), said


def _refusal(train: TrainConfig) -> str | None:
    try:
        check_config(RunConfig(train=train))
    except ValueError as error:
        return str(error)
    return None


def _alike(one: list[Any], other: list[Any]) -> bool:
    return all(torch.equal(torch.as_tensor(a), torch.as_tensor(b)) for a, b in zip(one, other, strict=True))


def test_every_option_has_its_place() -> None:
    """A new option is either tried here or known to have an effect whatever the others are."""
    inner = {f"distill.{item.name}" for item in fields(DistillConfig)}
    assert set(OTHER) | ELSEWHERE == {item.name for item in fields(TrainConfig)} | inner
    assert not set(OTHER) & ELSEWHERE
    for option in OTHER:
        assert _with(TrainConfig(), option) != TrainConfig()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--train.optimizer=sgd --train.betas=[0.5,0.6]", "train.betas=(0.5, 0.6) has no effect with train.optimizer"),
        ("--train.momentum=0.5", "train.momentum=0.5 has no effect with train.optimizer=adamw"),
        ("--train.schedule=constant --train.min_lr=1e-4", "train.min_lr=0.0001 has no effect with train.schedule"),
        ("--train.schedule=none", "train.warmup_epochs=3.0 has no effect with train.schedule=none: leave it "
         "out (where a config gives it, --train.warmup_epochs 0 takes it back)"),
        ("--train.warmup_epochs=0 --train.warmup_lr=1e-4", "has no effect with train.warmup_epochs=0"),
        ("--train.ema_warmup=false", "train.ema_warmup=False has no effect with train.ema_decay=null"),
        ("--train.distill.weight=0.3", "train.distill.weight=0.3 has no effect with train.distill.teacher=null"),
        ("--train.distill.checkpoint=w.pt", "train.distill.checkpoint='w.pt' has no effect with"),
        ("--train.distill.pretrained=true", "has no effect with train.distill.teacher=null"),
        ("--train.distill.teacher=. --train.distill.pretrained=true", "has no effect with the run"),
        ("--train.distill.teacher=resnet18 --train.distill.pretrained=true --train.distill.checkpoint=w.pt",
         "whose weights are taken"),
        ("--train.optimizer=adan --train.betas=[0.5,0.6]", "takes 3, [0.98, 0.92, 0.99] of its own"),
        ("--train.betas=[1.5,0.6]", "train.betas must lie from 0 to below 1, got [1.5, 0.6]"),
        ("--train.lr=1e-6", "train.min_lr=1e-05 is above train.lr=1e-06: training would end above its top"),
        ("--train.min_lr=1", "train.min_lr=1 is above train.lr=0.001"),
        ("--train.lr=1e-7 --train.min_lr=0", "train.warmup_lr=1e-06 is above train.lr=1e-07: training would begin"),
        ("--train.optimizer=adahessian", "train.optimizer=adahessian needs second derivatives"),
        ("--data.prefetch_factor=4", "data.prefetch_factor=4, expected data.num_workers of at least 1 beside it"),
        ("--data.start_method=spawn", "data.start_method='spawn', expected data.num_workers of at least 1"),
        ("--data.persistent_workers=false", "data.persistent_workers=False, expected data.num_workers of at least 1"),
        ("--output=x --resume=auto --overwrite=true", "overwrite=true has no effect with resume=auto"),
    ],
)  # fmt: skip
def test_what_is_said(words: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_config(words.split())
    assert message in str(caught.value)


def _yaml(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@pytest.mark.parametrize("option", OTHER)
def test_what_takes_an_option_back_does(option: str) -> None:
    """The way out that a refusal names is one: with those words added the config is taken."""
    word = f"--train.{option}={_yaml(OTHER[option])}"
    beside = ["--train.schedule=none", "--train.warmup_epochs=0"] if "lr" in option else []
    beside += ["--train.optimizer=adagrad"] if option in ("momentum", "betas") else []
    beside += ["--train.schedule=none"] if option == "warmup_epochs" else []
    if option in ("loss", "label_smoothing"):
        beside += ["--train.distill.teacher=resnet18", "--train.distill.pretrained=true", "--train.distill.weight=1"]
    if option == "weight_decay":
        return  # every optimiser has one
    with pytest.raises(ValueError) as caught:
        parse_config([*beside, word])
    found = re.search(r"(--train\S+) (\S+) takes it back", str(caught.value))
    assert found is not None, caught.value
    assert found[1] == f"--train.{option}"
    parse_config([*beside, word, f"{found[1]}={found[2]}"])


@pytest.mark.parametrize("option", ["ema_decay", "label_smoothing"])
def test_nothing_would_be_learned(option: str) -> None:
    with pytest.raises(ValueError, match=f"train.{option} must be less than 1"):
        parse_config([f"--train.{option}=1.0"])


@pytest.mark.parametrize("words", ["--train.schedule=none --train.warmup_epochs=0", "--train.schedule=constant"])
def test_small_rates_that_never_fall_are_taken(words: str) -> None:
    assert parse_config([*words.split(), "--train.lr=1e-6"]).train.lr == 1e-6


@pytest.mark.parametrize("value", [".nan", ".inf", "-.inf"])
def test_numbers_are_finite(value: str) -> None:
    """Every number of training and data that may have a fraction."""
    sections = {"train": TrainConfig(), "train.distill": DistillConfig(), "data": RunConfig().data}
    words = [
        f"--{section}.{item.name}={value}"
        for section, options in sections.items()
        for item in fields(options)
        if "float" in str(item.type) and "tuple" not in str(item.type)
    ]
    assert len(words) == 20
    for word in words:
        with pytest.raises(ValueError, match=word.partition("=")[0].removeprefix("--")):
            parse_config([word])


def test_an_option_of_a_file_is_refused_and_taken_back(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("train: {optimizer: sgd, betas: [0.8, 0.9]}\n")
    with pytest.raises(ValueError, match=r"--train\.betas null takes it back"):
        parse_config([f"--config={file}"])
    assert parse_config([f"--config={file}", "--train.betas=null"]).train.betas is None
    assert parse_config([f"--config={file}", "--train.optimizer=adamw"]).train.betas == (0.8, 0.9)


def test_an_empty_file_is_said_to_be_empty(tmp_path: Path) -> None:
    for text in ("", "# nothing yet\n", "---\n", "null\n"):
        (tmp_path / "empty.yaml").write_text(text)
        with pytest.raises(ValueError, match=r"empty\.yaml is empty: a config holds keys and values"):
            parse_config([f"--config={tmp_path / 'empty.yaml'}"])
