"""Pictures of a study with more variants than a plot can hold."""

from itertools import combinations

import pytest
from matplotlib.text import Annotation, Text

from tests.study.fabricate import TEXT, row_of, study_of
from vit_rpe.study.plan import MOST_LINES, cells_of
from vit_rpe.study.plots import study_figures
from vit_rpe.study.recipe import Recipes
from vit_rpe.study.report import summarise_rows
from vit_rpe.viz.plots.families import FAMILIES

MANY = ", ".join(
    f"{{label: a_variant_of_{rpe}_{number}, rpe: {rpe}}}" for number in range(11) for rpe in ("bias", "rope")
)


class NoRecipes:
    """One config stands for all: nothing is resolved."""

    def __init__(self, study):
        self.made = Recipes(study).config(cells_of(study)[0])

    def config(self, cell):
        return self.made

    def recipe(self, cell):
        return {}


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    text = TEXT.replace("none, bias,", f"none, {MANY},") + "pictures: {few: [none, yarn, rope]}\n"
    study = study_of(tmp_path_factory.mktemp("plots"), text)
    recipes = NoRecipes(study)
    rows = [row_of(study, cell, recipes) for cell in cells_of(study)]
    for row in rows[3:40]:  # many results that are all but the same
        row |= {key: 60 + row["seed"] + 0.01 * len(row["label"]) for key in row if key.startswith("accuracy")}
        row["images_per_second"] = 110.0
    return study_figures(study, rows, summarise_rows(study, rows))


def _names(figure):
    return [text for axes in figure.axes for text in axes.texts if isinstance(text, Annotation)]


def test_all_pictures_are_made(figures):
    assert set(figures) == {"accuracy", "cost", "learning", "size", "shift", "size_few"}


@pytest.mark.parametrize("name", ["learning", "size", "shift", "size_few"])
def test_lines_are_few_and_named_where_they_end(figures, name):
    (axes,) = figures[name].axes
    lines = axes.get_lines()
    assert len(lines) == (3 if name == "size_few" else MOST_LINES)
    names = [text.get_text() for text in _names(figures[name])]
    assert len(names) == len(lines)
    assert "none" in names
    assert ("yarn" in names) == (name == "size_few")  # it only reads what another variant trained
    looks = {(line.get_color(), str(line.get_linestyle()), line.get_marker()) for line in lines}
    assert len(looks) == len(lines)
    assert {line.get_color() for line in lines} <= set(FAMILIES.values())


@pytest.mark.parametrize("name", ["learning", "size", "shift", "size_few", "cost"])
def test_no_name_covers_another(figures, name):
    figure = figures[name]
    figure.draw_without_rendering()
    texts = {text.get_text(): Text.get_window_extent(text) for text in _names(figure)}
    assert len(texts) == len(_names(figure)) > 2
    for one, other in combinations(texts, 2):
        assert not texts[one].overlaps(texts[other]), f"{one} covers {other}"
