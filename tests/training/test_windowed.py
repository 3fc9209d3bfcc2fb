"""Windowed models train through the package's trainer, and a run that was cut ends with the same bits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.exchange.test_named_models import NAMED, create
from tests.training.conftest import assert_same_state, state_of
from vit_rpe.training import loop
from vit_rpe.training.config.parse import parse_config
from vit_rpe.training.model import _natives, _remembered
from vit_rpe.training.run import train

SPECS = ("keep", "bias", "rope", "cpb")
SAMPLE = (("swin", "keep"), ("swinv2", "bias"), ("sam", "cpb"), ("mvitv2", "rope"))
WORDS = (
    *("--data.name=digits", "--data.fraction=0.02", "--data.batch_size=16", "--data.eval_batch_size=64"),
    "--data.val_fraction=0.04",
    *("--data.mixup=0", "--data.cutmix=0.5", "--data.num_workers=0", "--data.augment=light", "--pictures=false"),
    *("--train.epochs=2", "--train.warmup_epochs=1", "--train.device=cpu", "--train.ema_decay=0.9"),
    *("--train.precision=no", "--train.layer_decay=0.7", "--model.img_size=64"),
)


@pytest.mark.parametrize(
    ("case", "rpe"),
    [
        pytest.param(case, rpe, marks=() if (case, rpe) in SAMPLE else pytest.mark.exhaustive)
        for case in NAMED
        for rpe in SPECS
    ],
)
def test_cut_and_resumed(case: str, rpe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, small = NAMED[case]
    words = [f"--model.name=vit_rpe_{name}", f"--model.args={json.dumps({'drop_path_rate': 0.2, **small})}"]
    words += [f"--model.rpe={rpe}", *WORDS]
    train(parse_config([*words, f"--output={tmp_path / 'straight'}"]))
    finish = loop._finish_epoch

    def stopping(session, *rest):
        finish(session, *rest)
        raise InterruptedError

    monkeypatch.setattr(loop, "_finish_epoch", stopping)
    with pytest.raises(InterruptedError):
        train(parse_config([*words, f"--output={tmp_path / 'cut'}"]))
    monkeypatch.setattr(loop, "_finish_epoch", finish)
    train(parse_config([*words, f"--output={tmp_path / 'cut'}", "--resume=auto"]))
    assert state_of(tmp_path / "cut")["counters"]["updates"] >= 2
    assert_same_state(tmp_path / "straight", tmp_path / "cut")


def test_sizes_that_come_with_weights_are_said_or_refused() -> None:
    """The configuration of a run builds its model again, with the windows that its networks were trained on."""
    pretrained = create("swinv2", "keep", pretrained_window_sizes=(8, 6))
    assert _remembered(pretrained, None, _natives(pretrained)) is None
    small, large = create("swinv2", "cpb", window_size=2), create("swinv2", "cpb", window_size=4)
    before = _natives(large)
    large.load_state_dict(small.state_dict())
    (spec,) = _remembered(large, "cpb", before) or ()
    assert (spec["name"], tuple(spec["native"])) == ("cpb", (2, 2))
    with pytest.raises(ValueError, match=r"trained on windows of \(2, 2\), which model\.rpe='keep' cannot say"):
        _remembered(large, "keep", before)
