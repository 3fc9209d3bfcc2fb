"""The tables of exactness in docs/timm.md have the rows that their command makes; the numbers are a machine's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from vit_rpe.commands._coverage_table import FAMILIES
from vit_rpe.commands.parity import PATHS

PAGE = (Path(__file__).parents[2] / "docs" / "timm.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("mark", "made"), [("parity", PATHS), ("families", FAMILIES)])
def test_the_rows_are_those_of_the_command(mark: str, made: Mapping[str, tuple[str, ...]]) -> None:
    (table,) = re.findall(rf"<!-- {mark}:.*?-->\n(.*?)<!-- /{mark} -->", PAGE, re.DOTALL)
    rows = [line.strip("| ").split(" | ") for line in table.strip().splitlines()[2:]]
    shown = {cells[0]: tuple(name.strip("`") for name in cells[1].split(", ")) for cells in rows}
    assert list(shown.items()) == list(made.items()), "run `vit-rpe parity --depth 6` and paste its two tables"
    assert all(re.fullmatch(r"\d\.\de[-+]\d\d", number) for cells in rows for number in cells[2:5])
