"""One update: accumulation, averaged weights, distillation, precision, compilation, recomputation."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from accelerate.state import AcceleratorState
from timm.utils import ModelEmaV3

from tests.training.conftest import state_of

PLAIN = (
    "--model.args={in_chans: 1, depth: 2, embed_dim: 24, num_heads: 3}",
    "--train.optimizer=sgd",
    "--train.epochs=2",
)


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    return state_of(folder)["model"]


def _largest_difference(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> float:
    return max(float((one[name] - two[name]).abs().max()) for name in one)


def test_accumulated_batches_are_one_big_batch(tiny, tmp_path: Path) -> None:
    """173 images: groups of 3 x 16 against batches of 48, the last group with 29 in two batches of 16 and 13."""
    small = (*PLAIN, "--data.drop_last=false", "--train.lr=0.2", "--train.warmup_epochs=0")
    tiny("big", *small, "--data.batch_size=48")
    tiny("small", *small, "--data.batch_size=16", "--train.accumulate=3")
    assert state_of(tmp_path / "small")["counters"]["updates"] == state_of(tmp_path / "big")["counters"]["updates"] == 8
    one, two = _weights(tmp_path / "big"), _weights(tmp_path / "small")
    assert _largest_difference(one, two) < 2e-5
    rows = [state_of(tmp_path / name)["counters"]["rows"][-1] for name in ("big", "small")]
    assert rows[0]["train_loss"] == pytest.approx(rows[1]["train_loss"], abs=1e-5)


def test_recomputed_activations_change_nothing(tiny, tmp_path: Path) -> None:
    tiny("plain", *PLAIN)
    tiny("again", *PLAIN, "--train.grad_checkpointing=true")
    assert _largest_difference(_weights(tmp_path / "plain"), _weights(tmp_path / "again")) < 1e-6


def test_a_compiled_model_trains_the_same_weights(tiny, tmp_path: Path, monkeypatch) -> None:
    from torch import nn

    compiled = []
    monkeypatch.setattr(nn.Module, "compile", lambda self: compiled.append(self))
    tiny("run", *PLAIN, "--train.compile=true")
    assert len(compiled) == 1
    assert not [name for name in _weights(tmp_path / "run") if "_orig_mod" in name]


def test_clipping_bounds_the_length_of_a_step(tiny, tmp_path: Path) -> None:
    options = (*PLAIN, "--train.optimizer=momentum", "--train.momentum=0", "--train.weight_decay=0", "--train.epochs=1")
    options += ("--data.batch_size=172", "--train.warmup_epochs=0")
    tiny("start", *options, "--train.lr=1e-12", "--train.min_lr=0")
    tiny("clipped", *options, "--train.lr=0.5", "--train.clip_grad=0.02")
    start, clipped = _weights(tmp_path / "start"), _weights(tmp_path / "clipped")
    length = math.sqrt(sum(float((clipped[name] - start[name]).square().sum()) for name in start))
    assert length == pytest.approx(0.5 * 0.02, rel=1e-3)


def test_bf16_computes_low_and_keeps_weights_high(tiny, tmp_path: Path) -> None:
    result = tiny("run", *PLAIN, "--train.precision=bf16", "--train.ema_decay=0.9")
    assert {value.dtype for value in _weights(tmp_path / "run").values()} == {torch.float32}
    assert math.isfinite(result.evaluation.loss)
    AcceleratorState._reset_state(True)
    tiny("full", *PLAIN, "--train.ema_decay=0.9")
    assert 0 < _largest_difference(_weights(tmp_path / "run"), _weights(tmp_path / "full")) < 0.05


def test_fp16_needs_a_gpu(tiny) -> None:
    with pytest.raises(ValueError, match=r"train\.precision fp16 needs a GPU"):
        tiny("run", "--train.precision=fp16")


def test_the_averaged_weights_follow_the_schedule_of_their_decay(tiny, tmp_path: Path, monkeypatch) -> None:
    steps = []
    update = ModelEmaV3.update
    monkeypatch.setattr(ModelEmaV3, "update", lambda self, model, step: (steps.append(step), update(self, model, step)))
    tiny("run", *PLAIN, "--train.ema_decay=0.9999")
    assert steps == list(range(1, 11))
    ema = ModelEmaV3(torch.nn.Linear(2, 2), decay=0.9999, use_warmup=True)
    assert ema.get_decay(100) == pytest.approx(1 - 100 ** (-2 / 3))
    assert math.isclose(ema.get_decay(100), 0.9536, abs_tol=5e-5)


def test_a_teacher_is_followed(tiny, tmp_path: Path) -> None:
    tiny("teacher", "--train.epochs=2")
    words = (f"--train.distill.teacher={tmp_path / 'teacher'}", "--train.epochs=2")
    tiny("student", *words, "--train.distill.weight=1", "--train.seed=3")
    tiny("alone", *words, "--train.distill.weight=0", "--train.seed=3")
    tiny("without", "--train.epochs=2", "--train.seed=3")
    student, alone, without = (_weights(tmp_path / name) for name in ("student", "alone", "without"))
    assert _largest_difference(alone, without) == 0
    assert _largest_difference(student, without) > 1e-3


def test_a_teacher_of_other_size_and_normalisation() -> None:
    from vit_rpe.data import Preprocessing
    from vit_rpe.training.teacher import Teacher

    seen = []
    ours = Preprocessing(img_size=(6, 10), in_chans=3, mean=(0.1, 0.2, 0.3), std=(0.5, 0.25, 0.2))
    mean, std = (0.4, 0.5, 0.6), (0.3, 0.2, 0.1)
    model = torch.nn.Identity()
    model.forward = lambda images: seen.append(images)  # type: ignore[method-assign]
    raw = torch.randint(256, (2, 3, 6, 10), dtype=torch.uint8)
    Teacher(model, mean=mean, std=std, img_size=(6, 10), student=ours)(ours.normalize(raw))
    theirs = Preprocessing(img_size=(6, 10), in_chans=3, mean=mean, std=std)
    torch.testing.assert_close(seen[0], theirs.normalize(raw), rtol=1e-4, atol=1e-5)
    Teacher(model, mean=mean, std=std, img_size=(9, 5), student=ours)(ours.normalize(raw))
    assert seen[1].shape == (2, 3, 9, 5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--train.distill.teacher=resnet1"], "is no folder and no timm model"),
        (["--train.distill.teacher=resnet18"], "needs train.distill.pretrained or train.distill.checkpoint"),
    ],
)
def test_a_wrong_teacher(tiny, words: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tiny("run", *words)
