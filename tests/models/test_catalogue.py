"""The table of encodings in the documentation is the one the registry gives."""

import json
from pathlib import Path

from vit_rpe import create_encoding, list_encodings
from vit_rpe.cli import main
from vit_rpe.models.catalogue import VIT_SMALL, catalogue, markdown_table

ROOT = Path(__file__).parents[2]
BUILT_IN = [name for name in list_encodings() if not name.startswith("toy")]


def test_the_page_shows_the_table_of_the_registry():
    text = (ROOT / "docs" / "encodings.md").read_text()
    table = text.split("<!-- encodings:")[1].split("-->\n", 1)[1].split("\n<!-- /encodings -->")[0]
    rows = [row for row in catalogue() if row.name in BUILT_IN]
    assert table == markdown_table(rows), "run `vit-rpe encodings --format markdown` and paste it"


def test_every_encoding_is_explained_and_its_picture_exists():
    text = (ROOT / "docs" / "encodings.md").read_text()
    for name in BUILT_IN:
        assert f"## `{name}`" in text
        assert name == "none" or (ROOT / "docs" / "pictures" / "encodings" / f"{name}.png").is_file()


def test_parameters_are_those_of_a_vit_small():
    rows = {row.name: row for row in catalogue()}
    assert rows["bias"].parameters == 12 * 6 * 27 * 27
    assert rows["rope"].parameters == 0
    assert rows["t5"].parameters == 12 * 2 * 6 * 32
    shape = (VIT_SMALL["num_heads"], VIT_SMALL["head_dim"], VIT_SMALL["grid"])
    shaw = create_encoding("shaw", *shape)
    assert rows["shaw"].parameters == 12 * sum(parameter.numel() for parameter in shaw.parameters())


def test_kernels_are_asked_for_what_they_can_do():
    rows = {row.name: row for row in catalogue()}
    assert "fold" not in rows["bias"].kernels.split(", "), "a joint table is no sum over axes"
    assert "sdpa" not in rows["shaw"].kernels.split(", "), "its value term needs the attention weights"
    assert "fold" in rows["decomposed"].kernels.split(", ")


def test_command_prints_all_encodings(capsys):
    assert main(["encodings", "--format", "json"]) == 0
    names = [row["name"] for row in json.loads(capsys.readouterr().out)]
    assert set(BUILT_IN) <= set(names)
    assert main(["encodings"]) == 0
    assert "rope_mixed" in capsys.readouterr().out
