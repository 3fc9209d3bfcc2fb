"""Rows of cells and of tables: which recipe they are of, what they lack, and what the report says of them."""

import json
import shutil
from pathlib import Path

import pytest

from tests.study.fabricate import TEXT, finish, row_of, study_of
from vit_rpe.cli import main
from vit_rpe.study.plan import cells_of, read_study
from vit_rpe.study.recipe import Recipes, recipe_of
from vit_rpe.study.report import write_tables
from vit_rpe.study.results import find_results, read_table, report_notes
from vit_rpe.study.runner import cell_state, open_cells
from vit_rpe.study.task import RESULT, cell_folder


def _states(study, output, tables=()):
    recipes = Recipes(study)
    cells = cells_of(study)
    results = find_results(study, cells, output, tables, recipes)
    return {cell.name: cell_state(study, cell, output, results) for cell in cells}


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("once")
    study = study_of(folder)
    finish(study, folder / "out", Recipes(study))
    return folder


@pytest.fixture
def finished(once, tmp_path):
    return shutil.copytree(once, tmp_path / "study")


@pytest.mark.parametrize(
    ("change", "options", "told"),
    [
        (("train.epochs: 2", "train.epochs: 3"), [], "train.epochs was 2, is 3"),
        (("overrides: {", "overrides: {train.lr: 0.5, "), [], "train.lr was 0.001, is 0.5"),
        (("digits/vit_nano_bias", "digits/vit_nano_none"), ["--train.warmup_epochs", "1"], "train.warmup_epochs was"),
        (("none, bias,", "none, {label: bias, rpe: {name: bias, max_distance: 1}},"), [], 'model.rpe was .*"bias"'),
        (
            ("none, bias,", "none, {label: bias, rpe: bias, args: {drop_rate: 0.5}},"),
            [],
            "model.args.drop_rate was null",
        ),
        (("scaling: yarn", "scaling: linear"), [], "rpe was .*yarn.*, is .*linear"),
        (("x", "x"), ["--train.epochs=5"], "train.epochs was 2, is 5"),
        (("x", "x"), ["--data.augment", "light"], 'data.augment was "none", is "light"'),
    ],
)
def test_another_recipe_is_told_and_refused(finished, change, options, told):
    study = study_of(finished, TEXT.replace(*change), options)
    with pytest.raises(ValueError, match=f"another recipe: .*{told}.*--output"):
        _states(study, finished / "out")


def test_where_and_how_it_is_computed_is_no_recipe(finished):
    options = ["--data.num_workers=3", "--train.device", "cpu", "--data.eval_batch_size", "7", "--train.log_every", "1"]
    assert set(_states(study_of(finished, TEXT, options), finished / "out").values()) == {"done"}
    assert recipe_of({"data": {"path": "there", "download": True}}) == recipe_of({})


def test_an_unfinished_cell_is_of_a_recipe_too(finished):
    folder = cell_folder(finished / "out", "bias-seed0")
    (folder / RESULT).unlink()
    (folder / "last").mkdir()
    other = study_of(finished, TEXT.replace("epochs: 2", "epochs: 3"))
    with pytest.raises(ValueError, match=r"bias-seed0: another recipe: train.epochs was 2, is 3"):
        find_results(other, cells_of(other, ["bias*0"]), finished / "out", [], Recipes(other))
    (folder / "last").rmdir()  # it has not got as far as a checkpoint: nothing of it would be mixed in
    assert _states(study_of(finished), finished / "out")["bias-seed0"] == "open"


def test_a_study_can_grow(finished):
    text = TEXT.replace("seeds: [0, 1]", "seeds: [0, 1, 2]").replace("none, bias,", "none, bias, shaw,")
    states = _states(study_of(finished, text), finished / "out")
    assert {name for name, state in states.items() if state == "open"} == {
        *("none-seed2", "bias-seed2", "rope-seed2", "yarn-seed2", "shaw-seed0", "shaw-seed1", "shaw-seed2"),
    }
    for changed in (
        ("[8, 12]", "[8, 12, 16]"),
        ("eval_shifts: [1]", "eval_shifts: [1, 2]"),
        ("eval_s", "eval_images: 9\neval_s"),
    ):
        states = _states(study_of(finished, TEXT.replace(*changed, 1)), finished / "out")
        assert set(states.values()) == {"evaluate"}, changed
    assert set(_states(study_of(finished, TEXT.replace("[8, 12]", "[8]")), finished / "out").values()) == {"done"}


def test_what_reads_weights_is_open_again_when_they_were_trained_again(finished):
    path = cell_folder(finished / "out", "rope-seed1") / RESULT
    path.write_text(json.dumps({**json.loads(path.read_text()), "date": "later"}))
    states = _states(study_of(finished), finished / "out")
    assert [name for name, state in states.items() if state != "done"] == ["yarn-seed1"]


def test_weights_to_be_read_must_be_there_or_be_trained(tmp_path):
    study = study_of(tmp_path)
    recipes, cells = Recipes(study), cells_of(study, ["yarn*"])
    results = find_results(study, cells_of(study), tmp_path, [], recipes)
    with pytest.raises(ValueError, match="yarn-seed0 reads the weights of rope-seed0, which are not there"):
        open_cells(study, cells, tmp_path, results, recipes)
    assert len(open_cells(study, cells_of(study), tmp_path, results, recipes)) == 8


def test_a_variant_must_fit_the_weights_it_reads(tmp_path):
    study = study_of(
        tmp_path, TEXT.replace("trained_as: rope, rpe: {name: rope, scaling: yarn}", "trained_as: rope, rpe: bias")
    )
    recipes, cells = Recipes(study), cells_of(study)
    results = find_results(study, cells, tmp_path, [], recipes)
    with pytest.raises(
        ValueError,
        match=r"variant yarn of tiny: it cannot read what rope trained: blocks.0.attn.rpe.table is absent there",
    ):
        open_cells(study, cells, tmp_path, results, recipes)


def test_tables_of_other_sessions_count_as_done(finished):
    study = study_of(finished)
    recipes, cells = Recipes(study), cells_of(study)
    write_tables(study, [row_of(study, cell, recipes, machine="other, 8 cores") for cell in cells[:3]], finished)
    table = str(finished / "results.csv")
    assert list(_states(study, finished / "new", [table]).values()).count("done") == 3
    results = find_results(study, cells, finished / "new", [table], recipes)
    assert sorted(results.tables) == ["bias-seed0", "none-seed0", "rope-seed0"]
    left = open_cells(study, cells, finished / "new", results, recipes)
    assert "yarn-seed0" not in [cell.name for cell in left]  # of the weights it reads there is only the row
    assert any("yarn-seed0 is open" in note for note in results.notes)
    both = find_results(study, cells, finished / "out", [table], recipes)
    assert both.tables == {}
    assert both.rows["none-seed0"]["machine"] == "toy, 2 cores"


def test_tables_are_of_this_recipe_or_refused(finished):
    study = study_of(finished)
    recipes, cells = Recipes(study), cells_of(study)
    table = str(finished / "results.csv")
    other = study_of(finished, TEXT.replace("epochs: 2", "epochs: 3"))
    write_tables(other, [row_of(other, cells_of(other)[0], Recipes(other))], finished)
    with pytest.raises(ValueError, match=r"results.csv, none-seed0: another recipe: train.epochs was 3, is 2"):
        find_results(study, cells, finished / "new", [table], recipes)
    write_tables(study, [row_of(study, cells[0], recipes, recipe=..., epochs=3)], finished)
    with pytest.raises(ValueError, match=r"train.epochs was 3, is 2"):
        find_results(study, cells, finished / "new", [table], recipes)
    rows = [row_of(study, cells[0], recipes, recipe=...), row_of(study, cells[1], recipes, label="gone")]
    write_tables(study, rows, finished)
    notes = find_results(study, cells, finished / "new", [table], recipes).notes
    assert any("1 rows of" in note and "do not say their recipe" in note for note in notes)
    assert any("Left out of" in note and "gone" in note for note in notes)
    second = finished / "second"
    second.mkdir()
    write_tables(study, [row_of(study, cells[0], recipes, accuracy=1.0)], second)
    with pytest.raises(ValueError, match="both have none-seed0, with different results"):
        find_results(study, cells, finished / "new", [table, str(second)], recipes)
    (finished / "results.csv").write_text("label,seed\nnone,0\n")
    with pytest.raises(ValueError, match="holds no results of a study: a row lacks rpe"):
        find_results(study, cells, finished / "new", [table], recipes)


def test_rows_that_were_published_are_taken(tmp_path):
    """Those of an older version have neither recipe nor machine."""
    study = read_study("study/digits")
    table = Path(__file__).parents[2] / "docs" / "results" / "digits.csv"
    results = find_results(study, cells_of(study), tmp_path, [str(table)], Recipes(study))
    assert len(results.rows) == len(read_table(str(table)))


def test_the_report_says_what_its_rows_have_not_in_common(finished):
    study = study_of(finished, TEXT.replace("overrides: {", "overrides: {train.position_lr: 10, "))
    recipes, cells = Recipes(study), cells_of(study)
    finish(study, finished / "mixed", recipes)
    for name, changes in {
        "none-seed0": {"machine": "other, 8 cores", "vit_rpe": "0.9"},
        "bias-seed0": {"accuracy_at_12px": ...},
    }.items():
        (cell,) = (cell for cell in cells if cell.name == name)
        row = row_of(study, cell, recipes, **changes)
        (cell_folder(finished / "mixed", name) / RESULT).write_text(json.dumps(row))
    (cell_folder(finished / "mixed", "rope-seed1") / RESULT).unlink()
    results = find_results(study, cells, finished / "mixed", [], recipes)
    notes = "\n".join(report_notes(study, cells, results, recipes.left_out))
    for part in (
        "1 of 8 cells are open: rope-seed1.",
        "1 rows lack accuracy_at_12px",
        "more than one machine: other, 8 cores (1 rows); toy, 2 cores (6 rows)",
        "more than one vit_rpe version: 0.9 (1 rows); 1 (6 rows)",
        "train.position_lr 10 is 1 for variants that learn no position: none, rope.",
    ):
        assert part in notes, notes


def test_position_lr_goes_where_it_has_an_effect(tmp_path):
    study = study_of(tmp_path, TEXT.replace("overrides: {", "overrides: {train.position_lr: 10, "))
    recipes = Recipes(study)
    rates = {cell.variant.label: recipes.config(cell).train.position_lr for cell in cells_of(study)}
    assert rates == {"none": 1, "bias": 10, "rope": 1, "yarn": 1}
    words = {cell.variant.label: recipes.words(cell, tmp_path) for cell in cells_of(study, ["*0"])}
    assert words["none"][-1] == "--train.position_lr=1"
    assert "--train.position_lr=1" not in words["bias"]


def test_list_and_report_from_the_command_line(finished, capsys):
    file, out = str(finished / "tiny.yaml"), str(finished / "out")
    assert main(["study", "--config", file, "--output", out, "--list", "--data.num_workers", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == ["done      none-seed0", "done      bias-seed0"]
    assert main(["study", "--config", file, "--output", out, "--list", "--train.epochs", "9"]) == 1
    assert "another recipe: train.epochs was 2, is 9" in capsys.readouterr().err
    assert main(["study", "--config", file, "--output", str(finished / "both"), "--report", "--also", out]) == 1
    assert "cannot read the results" in capsys.readouterr().err
    assert main(["study", "--config", file, "--output", out, "--report"]) == 0
    assert "`yarn`, trained as `rope`" in capsys.readouterr().out
    assert main(["study", "--config", file, "--output", str(finished / "both"), "--report", "--also", out]) == 0
    assert "8 of 8 cells" in capsys.readouterr().out
    assert (finished / "both" / "results.csv").read_text() == (finished / "out" / "results.csv").read_text()
    with pytest.raises(SystemExit):
        main(["study", "--config", file, "--dat.path", "x"])
    assert "unknown option --dat.path (did you mean '--data.path'?)" in capsys.readouterr().err
