"""A whole short run: what it leaves, that it repeats bit by bit, and that it stops where it should."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

from tests.training.conftest import assert_same_state, state_of
from vit_rpe.training.checkpoint.checkpoint import load_checkpoint
from vit_rpe.training.checkpoint.run_folder import read_metrics
from vit_rpe.training.metrics import evaluate


def test_pictures_can_be_left_out(tiny, tmp_path: Path, capsys) -> None:
    tiny("run", "--train.epochs=1", "--pictures=false")
    assert not (tmp_path / "run" / "pictures").exists()
    assert not any(line.startswith("pictures") for line in capsys.readouterr().out.splitlines())


def test_the_run_folder(tiny, tmp_path: Path, capsys) -> None:
    result = tiny("run", "--train.epochs=2", "--pictures=true")
    folder = tmp_path / "run"
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
    pictures = {
        f"pictures/{name}.png" for name in ("curves", "confusion", "bias", "attention_images", "attention_layers")
    }
    files = {"config.yaml", "data.json", "versions.json", "metrics.csv", "log.txt"}
    files |= {"best/model.safetensors", "best/config.json"}
    last = {"last/model.safetensors", "last/config.json", "last/training_state.pt"}
    assert names == files | last | pictures | {"best", "last", "pictures"}
    assert all((folder / picture).stat().st_size > 5000 for picture in pictures)
    rows = read_metrics(folder)
    assert [row["epoch"] for row in rows] == [1, 2]
    assert rows[-1]["test_accuracy"] == pytest.approx(result.evaluation.top1)
    torch_version = json.loads((folder / "versions.json").read_text())["packages"]["torch"]
    assert torch.__version__.startswith(torch_version)
    written = yaml.safe_load((folder / "config.yaml").read_text())
    assert written["train"]["epochs"] == 2
    assert written["data"]["fraction"] == 0.12
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"test accuracy: {100 * result.evaluation.top1:.1f} %"
    assert lines[-2] == f"evaluate      vit-rpe evaluate --checkpoint {folder / 'last'}"
    assert "digits: 173 training and 359 test images" in "\n".join(lines)
    assert any(line.startswith("batch   32 = 32") for line in lines)
    assert lines[-1] in (folder / "log.txt").read_text()


def test_the_checkpoint_alone_gives_the_same_accuracy(tiny, tmp_path: Path) -> None:
    result = tiny("run", "--train.epochs=1", "--train.ema_decay=0.9")
    loaded = load_checkpoint(tmp_path / "run" / "last")
    from vit_rpe.data import DataConfig, build_data, eval_loader

    config = DataConfig(**loaded.info.data)
    bundle = build_data(config, img_size=(8, 8), in_chans=1, seed=0)
    again = evaluate(
        loaded.model,
        eval_loader(bundle, config),
        prepare=loaded.preprocessing.normalize,
        num_classes=10,
        device=torch.device("cpu"),
    )
    assert (again.count, again.top1) == (359, result.evaluation.top1)
    assert again.loss == pytest.approx(result.evaluation.loss)
    state = state_of(tmp_path / "run")
    published = load_file(tmp_path / "run" / "last" / "model.safetensors")
    assert all(torch.equal(published[name], value) for name, value in state["ema"].items())
    assert not all(torch.equal(published[name], value) for name, value in state["model"].items())


def test_one_seed_gives_equal_bits_and_another_does_not(tiny, tmp_path: Path) -> None:
    options = ("--train.epochs=2", "--data.augment=light", "--data.mixup=0.4", "--train.ema_decay=0.98")
    tiny("one", *options)
    tiny("two", *options)
    tiny("three", *options, "--train.seed=1")
    assert_same_state(tmp_path / "one", tmp_path / "two")
    one, three = state_of(tmp_path / "one")["model"], state_of(tmp_path / "three")["model"]
    assert not torch.equal(one["blocks.0.attn.qkv.weight"], three["blocks.0.attn.qkv.weight"])


def test_a_loss_that_is_not_finite_stops_the_run(tiny, tmp_path: Path) -> None:
    tiny("run", "--train.epochs=2")
    best = load_file(tmp_path / "run" / "best" / "model.safetensors")
    state = state_of(tmp_path / "run")
    state["model"]["fc_norm.weight"].fill_(float("nan"))
    torch.save(state, tmp_path / "run" / "last" / "training_state.pt")
    with pytest.raises(RuntimeError, match=r"not finite at update 11 \(epoch 3\)"):
        tiny("run", "--train.epochs=3", "--resume=auto")
    assert state_of(tmp_path / "run")["counters"]["epoch"] == 2
    after = load_file(tmp_path / "run" / "best" / "model.safetensors")
    assert all(torch.equal(best[name], value) for name, value in after.items())
    assert all(value.isfinite().all() for value in after.values())
    assert "stopped: RuntimeError" in (tmp_path / "run" / "log.txt").read_text()


def test_weights_that_break_in_the_last_update_are_not_saved(tiny, tmp_path: Path, monkeypatch) -> None:
    from vit_rpe.training import loop

    update = loop._update

    def breaking(session, group, *rest):
        loss = update(session, group, *rest)
        if session.counters.step == session.updates_per_epoch - 1:
            session.model.fc_norm.weight.data.fill_(float("inf"))
        return loss

    monkeypatch.setattr(loop, "_update", breaking)
    with pytest.raises(RuntimeError, match=r"test loss is not finite after update 5 \(epoch 1\)"):
        tiny("run", "--train.epochs=2")
    assert not (tmp_path / "run" / "best").exists()
    assert not (tmp_path / "run" / "last").exists()


def test_a_run_is_not_overwritten_by_accident(tiny, tmp_path: Path) -> None:
    tiny("run", "--train.epochs=1")
    with pytest.raises(ValueError, match="holds a run already: --resume auto"):
        tiny("run", "--train.epochs=1")
    tiny("run", "--train.epochs=2", "--overwrite=true")
    assert len(read_metrics(tmp_path / "run")) == 2


def test_older_epochs_are_kept_on_request(tiny, tmp_path: Path) -> None:
    tiny("run", "--train.epochs=4", "--train.keep=3")
    history = tmp_path / "run" / "history"
    assert sorted(path.name for path in history.iterdir()) == ["epoch-0002", "epoch-0003"]
    assert load_checkpoint(history / "epoch-0002").info.epoch == 2
    assert state_of(tmp_path / "run")["counters"]["epoch"] == 4


def test_a_folder_that_cannot_be_written(tiny, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(RuntimeError, match="cannot write the run folder"):
        tiny("file/run", "--train.epochs=1")


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "trackio"])
def test_a_tracker_that_is_not_installed_is_named(tiny, monkeypatch, name: str) -> None:
    from vit_rpe.training.reporting import trackers

    monkeypatch.setattr(trackers, "get_available_trackers", list)
    with pytest.raises(ValueError, match=rf"trackers: {name} is not installed \(pip install {name}\)"):
        tiny("run", f"--trackers=[{name}]")
