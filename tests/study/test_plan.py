"""Study files and the grid of cells they stand for."""

from pathlib import Path

import pytest

from vit_rpe.study.plan import Cell, Variant, cells_of, read_study
from vit_rpe.study.recipe import Recipes
from vit_rpe.training.config.parse import parse_config
from vit_rpe.training.config.shipped import list_configs

TEXT = """
name: tiny
base: digits/vit_nano_bias
variants: [none, bias, {label: big, rpe: {name: bias, max_distance: 1}, args: {drop_rate: 0.1}}]
seeds: [0, 3]
fractions: [1.0, 0.5]
img_sizes: [null, 16, [8, 12]]
overrides: {train.epochs: 2}
"""


def _write(folder: Path, text: str) -> str:
    file = folder / "study.yaml"
    file.write_text(text)
    return str(file)


def test_the_grid_is_whole_and_names_are_unique(tmp_path):
    cells = cells_of(read_study(_write(tmp_path, TEXT)))
    assert len(cells) == 3 * 2 * 2 * 3
    names = [cell.name for cell in cells]
    assert len(set(names)) == len(names)
    assert names[0] == "none-seed0"
    assert "big-f0.5-s8x12-seed3" in names
    assert all("seed0" in name for name in names[: len(names) // 2])


def test_only_selects_by_pattern(tmp_path):
    study = read_study(_write(tmp_path, TEXT))
    assert [cell.name for cell in cells_of(study, ["bias-seed*"])] == ["bias-seed0", "bias-seed3"]
    with pytest.raises(ValueError, match="'bais-seed0' fits no cell"):
        cells_of(study, ["bais-seed0"])


def test_a_cell_is_a_valid_training_command(tmp_path):
    study = read_study(_write(tmp_path, TEXT))
    cell = Cell(study.variants[2], seed=3, fraction=0.5, img_size=[8, 12])
    config = parse_config(cell.words(study, tmp_path / "run"))
    assert config.model.rpe == {"name": "bias", "max_distance": 1}
    assert config.model.args["drop_rate"] == 0.1
    assert config.model.args["in_chans"] == 1
    assert tuple(config.model.img_size) == (8, 12)
    assert (config.train.seed, config.train.epochs, config.data.fraction) == (3, 2, 0.5)


def test_variants_by_name_and_by_mapping(tmp_path):
    study = read_study(_write(tmp_path, TEXT))
    assert study.variants[1] == Variant("bias", "bias")
    assert study.variants[2].args == {"drop_rate": 0.1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TEXT.replace("seeds:", "seads:"), "unknown key 'seads'.*did you mean 'seeds'"),
        (TEXT.replace("variants: [none,", "variants: [bias,"), "more than one variant labelled bias"),
        (TEXT + "baseline: nune\n", "baseline 'nune' is no variant.*did you mean 'none'"),
        (TEXT.replace("name: tiny", ""), "needs the key 'name'"),
        (TEXT.replace("digits/vit_nano_bias", "digits/vit_nano_bais"), "did you mean 'digits/vit_nano_bias'"),
        ("- none\n", "must hold keys and values"),
        (TEXT.replace("label: big", "lable: big"), "a variant in"),
        (TEXT.replace("label: big", "label: big, trained_as: bais"), "'bais' is no variant.*did you mean 'bias'"),
        (
            TEXT.replace("bias, {", "{label: bias, trained_as: big}, {").replace(
                "label: big", "label: big, trained_as: bias"
            ),
            "trains nothing",
        ),
        (TEXT + "pictures: {few: [none, bais]}\n", "in the picture 'few' 'bais' is no variant"),
        (TEXT + f"pictures: {{many: {['none'] * 12}}}\n", "has 12 lines, at most 11"),
    ],
)
def test_bad_files(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read_study(_write(tmp_path, text))


OPTIONS = ["--data.augment", "light", "--train.epochs=7", "--model.img_size", "16", "24", "--model.args.depth", "2"]


def test_options_of_the_command_line_change_every_cell(tmp_path):
    text = TEXT.replace("img_sizes: [null, 16, [8, 12]]\n", "")
    study = read_study(_write(tmp_path, text), OPTIONS)
    for cell in cells_of(study):
        config = parse_config(cell.words(study, tmp_path / "run"))
        assert (config.data.augment, config.train.epochs, config.model.img_size) == ("light", 7, (16, 24))
        assert config.model.args["depth"] == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data.pth", "x"], "unknown config key 'data.pth'.*did you mean 'data.path'"),
        (["--data.path"], "--data.path needs a value"),
        (["--train.epochs", "1", "2"], "'2' belongs to no option"),
        (["--train.seed", "1"], r"what the study varies \(seeds\)"),
        (["--data.fraction", "1"], r"what the study varies \(fractions\)"),
        (["--model.rpe", "rope"], r"what the study varies \(variants\)"),
        (["--model.img_size", "8"], r"what the study varies \(img_sizes\)"),
        (["--model.args.drop_rate", "0"], r"what the study varies \(variants\)"),
        (["--model.args", "{drop_rate: 0}"], r"what the study varies \(variants\)"),
        (["--trackers", "[wandb]"], "--trackers is of no single cell"),
    ],
)
def test_options_that_a_study_does_not_take(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        read_study(_write(tmp_path, TEXT), options)


def test_shipped_studies_are_valid():
    studies = list_configs(studies=True)
    assert "study/digits" in studies
    for name in studies:
        study = read_study(name)
        first = {cell.variant.label: cell for cell in cells_of(study)}
        recipes = Recipes(study)
        for cell in first.values():
            recipes.check(cell)
