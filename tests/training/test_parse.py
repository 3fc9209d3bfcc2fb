"""Words on a command line to a config, and what a wrong word is told."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest
import timm
import yaml

from vit_rpe.training.config.parse import parse_config
from vit_rpe.training.config.shipped import config_folder, find_config, list_configs
from vit_rpe.training.config.yaml_text import dump_yaml, load_yaml


def test_without_a_config_the_digits_run() -> None:
    config = parse_config([])
    assert (config.data.name, config.model.name) == ("digits", "vit_rpe_nano_patch2_8")
    assert config.model.args == {"in_chans": 1, "drop_path_rate": 0.1}
    assert config.output.startswith("runs/digits-vit_nano_bias/")


@pytest.mark.parametrize("name", list_configs())
def test_every_shipped_config_parses_and_builds(name: str) -> None:
    from vit_rpe.training.model import plan_model

    config = parse_config(["--config", name])
    plan = plan_model(config.model, config.data)
    assert plan.name == config.model.name
    assert find_config(name).read_text().startswith("# "), "a config says on top what it is and how to run it"


def test_options_override_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("train: {epochs: 7, lr: 2e-3, seed: 5}\nmodel: {rpe: alibi, args: {in_chans: 1}}\n")
    words = ["--config", str(file), "--train.epochs", "4", "--model.rpe", "rope", "--output", "here"]
    config = parse_config([*words, "--model.args.drop_path_rate", "0.25", "--model.img_size", "[8, 4]"])
    assert (config.train.epochs, config.train.lr, config.train.seed) == (4, 2e-3, 5)
    assert (config.model.rpe, config.model.img_size, config.output) == ("rope", (8, 4), "here")
    assert config.model.args == {"in_chans": 1, "drop_path_rate": 0.25}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("rope", "rope"),
        ("none", "none"),
        ("null", None),
        ("{name: bias, max_distance: 7}", {"name": "bias", "max_distance": 7}),
        ("[bias, {name: rope, base: 50}]", ["bias", {"name": "rope", "base": 50}]),
    ],
)
def test_an_encoding_is_a_name_a_dict_or_a_list(text: str, value: object) -> None:
    assert parse_config(["--model.rpe", text]).model.rpe == value


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--train.epoch", "3"], "unknown config key 'train.epoch' (did you mean 'train.epochs'?)"),
        (["--train.epoch=3"], "unknown config key 'train.epoch' (did you mean 'train.epochs'?)"),
        (["--epochs", "3"], "unknown config key 'epochs' (did you mean 'train.epochs'?)"),
        (["--model.rep", "rope"], "unknown config key 'model.rep' (did you mean 'model.rpe'?)"),
        (["--zzzzqqqq", "3"], "unknown config key 'zzzzqqqq'; --help lists the keys"),
        (["--train.epochs", "x"], "train.epochs"),
        (["--train.epochs", "2.5"], "train.epochs"),
        (["--train.loss", "bec"], "(did you mean 'bce'?)"),
        (["--train.epochs", "0"], "train.epochs must be at least 1, got 0"),
        (["--train.lr", "0"], "train.lr must be more than 0, got 0"),
        (["--train.label_smoothing", "1.5"], "train.label_smoothing must lie between 0 and 1, got 1.5"),
        (["--train.optimizer", "admw"], "unknown train.optimizer 'admw' (did you mean 'adamw'?)"),
        (["--train.schedule", "cosin"], "unknown train.schedule 'cosin' (did you mean 'cosine'?)"),
        (["--trackers", "[wandbb]"], "unknown trackers 'wandbb' (did you mean 'wandb'?)"),
        (["--data.name", "digit"], "(did you mean 'digits'?)"),
        (["--data.augment", "ligth"], "(did you mean 'light'?)"),
        (["--config", "digits/vit_nano_bais"], "(did you mean 'digits/vit_nano_bias'?)"),
        (["--config"], "--config needs a value"),
        (["--model.patch_size", "8"], "goes into model.args: --model.args '{patch_size: ...}'"),
        (["--drop_path_rate=0.1"], "goes into model.args: --model.args '{drop_path_rate: ...}'"),
    ],
)
def test_a_wrong_word_is_refused_in_one_line(words: list[str], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_config(words)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "<class" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train: {epochs: 3, lrr: 0.1}", "unknown config key 'train.lrr'"),
        ("trian: {epochs: 3}", "unknown config key 'trian'"),
        ("train: {distill: {techer: x}}", "(did you mean 'train.distill.teacher'?)"),
        ("- 1\n- 2", "must hold keys and values, got a list"),
        ("train: {epochs: [", "is not valid YAML"),
        ("train: {epochs: many}", "train.epochs"),
        ("train: 5", "got 5 for TrainConfig"),
        ("train: {epochs: 3}\ntrain: {epochs: 4}", 'line 2, column 1: found duplicate key "train"'),
        ("train: {epochs: 3, epochs: 4}", 'found duplicate key "epochs"'),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(text)
    with pytest.raises(ValueError) as caught:
        parse_config(["--config", str(file)])
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model.name", "vit_rpe_nano_patch2_9"], "(did you mean 'vit_rpe_nano_patch2_8'?)"),
        (["--model.rpe", "ropee"], "(did you mean 'rope'?)"),
        (["--model.rpe", "{name: bias, max_distence: 3}"], "max_distance"),
        (["--model.img_size", "9"], "9"),
        (["--model.args.num_classes", "3"], "model.args must not hold 'num_classes': it comes from the data"),
        (["--model.args.nonsense", "3"], "vit_rpe_nano_patch2_8 has no argument 'nonsense'"),
        (["--model.args.img_sz", "8"], "has no argument 'img_sz' (did you mean 'img_size'?)"),
        (["--model.img_size", "8", "--data.img_size", "16"], "model.img_size is 8 but data.img_size is 16"),
    ],
)
def test_a_wrong_model_is_refused_before_the_data_are_read(words: list[str], message: str, monkeypatch) -> None:
    from vit_rpe.training import run

    monkeypatch.setattr(run, "build_data", lambda *args, **more: pytest.fail("the data were read"))
    with pytest.raises(ValueError) as caught:
        run.train(parse_config(words))
    assert message in str(caught.value)


def test_help_and_print_config(capsys) -> None:
    for words in (["--help"], ["--config", "digits/vit_nano_bias", "-h"]):
        with pytest.raises(SystemExit) as caught:
            parse_config(words)
        assert caught.value.code == 0
        text = capsys.readouterr().out
        assert text.startswith("usage: vit-rpe train [--config NAME_OR_FILE]")
        assert "--train.epochs EPOCHS" in text
        assert "Passes over the training images" in text
    with pytest.raises(SystemExit) as caught:
        parse_config(["--train.epochs", "9", "--print_config"])
    assert caught.value.code == 0
    printed = yaml.safe_load(capsys.readouterr().out)
    assert printed["train"]["epochs"] == 9
    assert printed["model"]["args"] == {"in_chans": 1, "drop_path_rate": 0.1}


def test_the_printed_config_is_a_config(tmp_path: Path, capsys) -> None:
    with pytest.raises(SystemExit):
        parse_config(["--train.betas", "[0.8, 0.95]", "--output", "x", "--print_config"])
    file = tmp_path / "printed.yaml"
    file.write_text(capsys.readouterr().out)
    assert parse_config(["--config", str(file)]) == parse_config(["--train.betas", "[0.8, 0.95]", "--output", "x"])


def test_shipped_configs_are_found_by_name_and_by_path() -> None:
    path = config_folder() / "digits" / "vit_nano_bias.yaml"
    for name in ("digits/vit_nano_bias", "configs/digits/vit_nano_bias.yaml", str(path)):
        assert find_config(name).samefile(path)


@pytest.mark.parametrize("way", ["option", "key", "file"])
def test_on_and_no_are_words_and_exponents_are_numbers(way: str, tmp_path: Path) -> None:
    """YAML 1.1 reads the key ``on`` as True and ``1e-3`` as text: the first broke irpe's option of that name."""
    file = tmp_path / "mine.yaml"
    file.write_text("model:\n  rpe: {name: irpe, on: [q, v]}\n  args: {init_values: 1e-3}\n")
    words = {
        "option": ["--model.rpe", "{name: irpe, on: [q, v]}", "--model.args", "{init_values: 1e-3}"],
        "key": ["--model.rpe={name: irpe}", "--model.rpe.on=[q, v]", "--model.args.init_values=1e-3"],
        "file": ["--config", str(file)],
    }[way]
    config = parse_config(words if way == "file" else ["--config", "digits/vit_nano_none", *words])
    assert config.model.rpe == {"name": "irpe", "on": ["q", "v"]}
    assert config.model.args["init_values"] == 1e-3
    again = tmp_path / "again.yaml"
    again.write_text(dump_yaml(asdict(config)["model"]))
    assert load_yaml(again.read_text())["rpe"] == yaml.safe_load(again.read_text())["rpe"] == config.model.rpe


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("OFF", "OFF"),
        ("True", True),
        ("010", 10),
        ("0o10", 8),
        ("1e-3", 1e-3),
        ("1E5", 1e5),
        ("12:30", "12:30"),
        ("1_000", "1_000"),
        ("1_0.5", "1_0.5"),
        ("0b11", "0b11"),
        ("0x1F", 31),
        ("2026-01-01", "2026-01-01"),
        ("=", "="),
        ("~", None),
    ],
)
def test_yaml_is_version_1_2(text: str, value: object) -> None:
    read = load_yaml(f"key: {text}")["key"]
    assert (read, type(read)) == (value, type(value))
    again = dump_yaml({"key": value, "text": text})
    assert load_yaml(again) == yaml.safe_load(again) == {"key": value, "text": text}


@pytest.mark.parametrize("place", [0, 1, 2])
def test_words_override_files_wherever_they_stand(place: int) -> None:
    words = ["--train.epochs=1", "--train.lr=0.5"]
    words.insert(place, "--config=cifar10/vit_tiny_bias")
    config = parse_config(words)
    assert (config.train.epochs, config.train.lr, config.data.name) == (1, 0.5, "cifar10")


@pytest.mark.parametrize(
    ("words", "patch", "channels"),
    [
        (["--data.name", "cifar10"], "patch4_32", 3),
        (["--data.name=fashion_mnist"], "patch4_28", 1),
        (["--data.name", "imagenet"], "patch16_224", 3),
        (["--data.name", "folder", "--data.path", "photos", "--model.img_size", "96"], "patch8_96", 3),
        (["--data.name", "parquet", "--data.path", "photos"], "patch8_96", 3),
        (["--data.name", "digits"], "patch2_8", 1),
    ],
)
def test_the_recipe_follows_the_data(words: list[str], patch: str, channels: int, capsys) -> None:
    config = parse_config(words)
    assert config.model.name.endswith(patch)
    assert config.model.args.get("in_chans", 3) == channels
    assert ("no --config given" in capsys.readouterr().out) == (patch != "patch2_8")


def test_text_has_a_recipe_of_its_own() -> None:
    assert parse_config(["--data.name", "text"]).model.name.startswith("rpe_sequence")
    assert parse_config(["--data.name", "text_classes"]).data.name == "text_classes"


def test_a_size_is_one_number_or_two() -> None:
    assert tuple(parse_config(["--model.img_size", "64", "128", "--train.epochs", "2"]).model.img_size) == (64, 128)
    assert parse_config(["--model.img_size", "64", "--train.epochs", "2"]).model.img_size == 64
    assert tuple(parse_config(["--model.img_size", "[64, 128]"]).model.img_size) == (64, 128)


@pytest.mark.parametrize("name", ["vit_rpe_nano_patch2_8", "vit_rpe_custom", "rpe_sequence_nano"])
def test_a_model_names_the_argument_that_was_meant(name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name} has no argument 'embed_dimm' \(did you mean 'embed_dim'"):
        timm.create_model(name, embed_dimm=8)


@pytest.mark.parametrize(
    ("key", "kind"),
    [("train.lr", "float"), ("train.epochs", "int"), ("train.clip_grad", "float"), ("data.batch_size", "int"),
     ("train.distill.weight", "float")],
)  # fmt: skip
@pytest.mark.parametrize("text", ["1:30", "1_000", "0b11", "'3'", "three", "no"])
def test_text_is_no_number(tmp_path: Path, key: str, kind: str, text: str) -> None:
    """The option parser reads what should be a number by version 1.1 of YAML, where these are 90, 1000 and 3."""
    for words in ([f"--{key}={text}"], [f"--{key}", text]):
        with pytest.raises(ValueError, match=rf'config key "{key}": expected {kind}. Got value: '):
            parse_config(words)
    *sections, last = key.split(".")
    file = tmp_path / "mine.yaml"
    lines = [f"{'  ' * depth}{name}:\n" for depth, name in enumerate(sections)]
    file.write_text("".join(lines) + f"{'  ' * len(sections)}{last}: {text}\n")
    with pytest.raises(ValueError, match=rf'config key "{key}": expected {kind}. Got value: .* in {file}'):
        parse_config(["--config", str(file)])
