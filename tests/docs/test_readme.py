"""README is short, and what it says can be checked: numbers are counted, commands exist, code runs."""

from __future__ import annotations

import csv
import re
import shlex
from pathlib import Path

import pytest

from tests.commands.test_effects import options_of
from vit_rpe import list_encodings
from vit_rpe.cli import COMMANDS
from vit_rpe.models.shipped import shipped_models

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BUILT_IN = [name for name in list_encodings() if not name.startswith("toy")]
IN_CODE = re.findall(r"`([^`\n]+)`", README) + [
    line for block in re.findall(r"^```\n(.*?)^```", README, re.DOTALL | re.MULTILINE) for line in block.splitlines()
]


def test_it_is_short() -> None:
    assert README.count("\n") <= 150
    assert (ROOT / "docs" / "pictures" / "position_learned.webp").stat().st_size <= 2_000_000


def test_every_encoding_is_named_and_the_number_is_right() -> None:
    table = README.split("| what position adds |")[1].split("\n\n")[0]
    assert sorted(re.findall(r"`(\w+)`", table)) == sorted(BUILT_IN)
    assert re.findall(r"(\d+) (?:published )?encodings", README) == [str(len(BUILT_IN))] * 2


def test_the_number_of_those_measured_is_right() -> None:
    with (ROOT / "docs" / "results" / "digits.csv").open(newline="", encoding="utf-8") as file:
        measured = {row["label"] for row in csv.DictReader(file)} & set(BUILT_IN)
    assert re.findall(r"(\d+) of them trained", README) == [str(len(measured))]


def test_every_command_and_option_exists() -> None:
    commands = [shlex.split(text) for text in IN_CODE if text.startswith("vit-rpe ")]
    assert {words[1] for words in commands} >= {"explore", "encodings", "parity", "benchmark"}
    for words in commands:
        assert words[1] in COMMANDS
        if words[1] != "train":  # its options are the fields of its config
            given = {word for word in words if word.startswith("--")}
            assert given <= options_of(words[1]), words
    shown = re.search(r"## The command line\n(.*?)\n## ", README, re.DOTALL)
    assert shown is not None
    assert set(COMMANDS) == {name for name in COMMANDS if re.search(rf"\b{name}\b", shown[1])}


def test_tests_and_models_that_it_names_are_there() -> None:
    for words in [text.split() for text in IN_CODE if text.startswith("pytest ")]:
        assert all((ROOT / word).exists() for word in words[1:]), words
    named = re.findall(r"vit_rpe_\w+\.\w+", README)
    assert named
    assert set(named) <= set(shipped_models())


@pytest.mark.slow
def test_its_code_runs() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(block, "README.md", "exec"), {})
