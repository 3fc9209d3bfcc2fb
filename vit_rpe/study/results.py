"""The rows of a study: those of its cells, and those of tables that other sessions and machines left."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vit_rpe.encodings import parse_specs
from vit_rpe.study.plan import Cell, StudyConfig
from vit_rpe.study.recipe import Recipes, differences, recipe_of
from vit_rpe.study.task import RESULT, cell_folder
from vit_rpe.training.checkpoint.files import newest
from vit_rpe.training.config.yaml_text import read_yaml

Row = dict[str, Any]
ELSEWHERE = re.compile(r"accuracy_(at|shift)_(\d+)px")
COLUMNS = (
    *("study", "label", "rpe", "args", "trained_as", "seed", "fraction", "img_size", "epochs", "parameters"),
    *("accuracy", "loss", "calibration_error", "test_images", "seconds", "images_per_second", "peak_memory_mb"),
    "eval_images",
)
PROVENANCE = ("curve", "machine", "date", "python", "torch", "timm", "vit_rpe", "git_revision", "recipe")
_TEXT = ("study", "label", "rpe", "args", "trained_as", "img_size", *PROVENANCE)
_HOW = "; to keep what is there, give the new recipe another --output, or remove these cells"


@dataclass
class Results:
    """Rows by the name of their cell.

    Attributes:
        rows: all of them, complete or not.
        tables: which of them come from a table, and which.
        notes: what a reader of the report should know, in sentences.
    """

    rows: dict[str, Row] = field(default_factory=dict)
    tables: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def elsewhere_columns(rows: Sequence[Row]) -> list[str]:
    """The columns of other sizes, then of shifts, each by pixels."""
    found = {(kind, int(pixels)) for row in rows for kind, pixels in map(_parts, row) if kind}
    return [f"accuracy_{kind}_{pixels}px" for kind, pixels in sorted(found)]


def _parts(column: str) -> tuple[str, str]:
    found = ELSEWHERE.fullmatch(column)
    return (found[1], found[2]) if found else ("", "0")


def missing_columns(row: Row, sizes: Sequence[int], shifts: Sequence[int], images: int | None) -> list[str]:
    """What a result still lacks; with another number of test images than it was measured on, everything."""
    wanted = [f"accuracy_at_{size}px" for size in sizes] + [f"accuracy_shift_{shift}px" for shift in shifts]
    return [column for column in wanted if column not in row or row.get("eval_images") != images]


def read_result(folder: Path) -> Row | None:
    """The row in a cell's folder, None if it has none; a damaged file counts as none."""
    try:
        row = json.loads((folder / RESULT).read_text())
    except (OSError, json.JSONDecodeError):
        return None
    return None if _absent(row) else row


def _absent(row: Row) -> list[str]:
    needed = ("label", "rpe", "args", "seed", "fraction", "img_size", "epochs", "accuracy", "parameters", "seconds")
    return [key for key in (*needed, "images_per_second") if key not in row]


def find_results(
    study: StudyConfig, cells: Sequence[Cell], output: Path, tables: Sequence[str], recipes: Recipes
) -> Results:
    """Everything that is known of ``cells``; what was trained under another recipe is refused.

    Args:
        tables: results of other sessions and machines: ``results.csv`` files, or folders of studies. A cell that has
            a row there counts as done; where the study's own folder has one too, that one counts.

    Raises:
        ValueError: a table that cannot be read, two tables that differ, or another recipe, told option by option.
    """
    results = Results()
    _check_cells(cells, output, recipes)
    for table in tables:
        _take_table(results, study, {cell.name: cell for cell in cells}, table, recipes)
    for cell in cells:
        row = read_result(cell_folder(output, cell.name))
        if row is not None:
            results.rows[cell.name] = row
            results.tables.pop(cell.name, None)
    return results


def _check_cells(cells: Sequence[Cell], output: Path, recipes: Recipes) -> None:
    """Refuse cells that were trained, or begun, under another recipe."""
    other: dict[str, list[str]] = {}
    for cell in cells:
        folder = cell_folder(output, cell.name)
        row = read_result(folder)
        if cell.variant.trained_as is not None:
            phrases = [] if row is None else _other_columns(row, cell)
        elif row is None and newest(folder / "last") is None:
            continue
        elif (folder / "config.yaml").is_file():
            phrases = differences(recipe_of(read_yaml(folder / "config.yaml")), recipes.recipe(cell))
        else:
            phrases = [] if row is None else _of_row(row, cell, recipes)
        if phrases:
            other.setdefault("; ".join(phrases), []).append(cell.name)
    for phrase, names in other.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        raise ValueError(f"{cell_folder(output, names[0])}{more}: another recipe: {phrase}{_HOW}")


def _of_row(row: Row, cell: Cell, recipes: Recipes) -> list[str]:
    """How the recipe of a row differs from the cell's, as far as the row knows it."""
    phrases = _other_columns(row, cell)
    if row.get("recipe"):
        return phrases + differences(json.loads(row["recipe"]), recipes.recipe(cell))
    epochs = recipes.config(cell).train.epochs
    return phrases + ([f"train.epochs was {row['epochs']:g}, is {epochs}"] if row.get("epochs") != epochs else [])


def _other_columns(row: Row, cell: Cell) -> list[str]:
    variant = cell.variant
    now = {"rpe": parse_specs(variant.rpe), "args": variant.args, "trained_as": variant.trained_as}
    before = {
        "rpe": parse_specs(json.loads(row["rpe"])),
        "args": json.loads(row["args"]),
        "trained_as": row.get("trained_as"),
    }
    return [f"{key} was {before[key]!r}, is {now[key]!r}" for key in now if before[key] != now[key]]


def _take_table(results: Results, study: StudyConfig, cells: dict[str, Cell], table: str, recipes: Recipes) -> None:
    labels = {cell.variant.label: cell.variant for cell in cells.values()}
    strange: set[str] = set()
    unknown = 0
    for row in read_table(table):
        if row["label"] not in labels:
            strange.add(row["label"])
            continue
        size = json.loads(row["img_size"])
        name = Cell(labels[row["label"]], int(row["seed"]), row["fraction"], size).name
        if name not in cells:
            strange.add(name)
            continue
        phrases = _of_row(row, cells[name], recipes)
        if phrases:
            raise ValueError(f"{table}, {name}: another recipe: {'; '.join(phrases)}")
        before = results.rows.get(name)
        if before is not None and before["accuracy"] != row["accuracy"]:
            raise ValueError(f"{table} and {results.tables[name]} both have {name}, with different results")
        unknown += not row.get("recipe")
        results.rows[name], results.tables[name] = row, table
    if strange:
        results.notes.append(f"Left out of {table}, because the study has no such cells: {_some(strange)}.")
    if unknown:
        results.notes.append(
            f"{unknown} rows of {table} do not say their recipe: encoding, arguments and epochs are this study's."
        )


def _some(names: Collection[str], most: int = 8) -> str:
    shown = sorted(names)[:most]
    return ", ".join(shown) + (f" and {len(names) - most} more" if len(names) > most else "")


def read_table(place: str) -> list[Row]:
    """The rows of a results table.

    Args:
        place: a file such as ``results.csv``, or the folder of a study that holds one.

    Raises:
        ValueError: no such file, or one without the columns of a study's results.
    """
    path = Path(place) / "results.csv" if Path(place).is_dir() else Path(place)
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [{key: _value(key, text) for key, text in row.items() if text} for row in csv.DictReader(file)]
    except OSError as error:
        raise ValueError(f"cannot read the results {path}: {error.strerror}") from error
    for row in rows:
        if _absent(row):
            raise ValueError(f"{path} holds no results of a study: a row lacks {', '.join(_absent(row))}")
    return rows


def _value(key: str, text: str) -> Any:
    if key in _TEXT:
        return text
    number = float(text)
    return int(number) if number.is_integer() and key != "fraction" else number


def report_notes(
    study: StudyConfig, cells: Sequence[Cell], results: Results, left_out: Mapping[str, float]
) -> list[str]:
    """What a reader of the tables should know, one sentence each."""
    rows = [results.rows[cell.name] for cell in cells if cell.name in results.rows]
    notes = [f"Hardware: {study.hardware}."] if study.hardware else []
    names = [cell.name for cell in cells if cell.name not in results.rows]
    if names:
        notes.append(f"{len(names)} of {len(cells)} cells are open: {_some(names)}.")
    for column in elsewhere_columns(rows):
        absent = sum(column not in row for row in rows)
        if absent:
            notes.append(f"{absent} rows lack {column}: it was not measured, and means are over the others.")
    counts = {row["eval_images"] for row in rows if row.get("eval_images")}
    if counts:
        listed = " or ".join(f"{count:,}" for count in sorted(counts))
        notes.append(f"Other sizes and shifts were evaluated on {listed} test images, evenly spread.")
    if left_out:
        rate = next(iter(left_out.values()))
        notes.append(f"train.position_lr {rate:g} is 1 for variants that learn no position: {', '.join(left_out)}.")
    return notes + provenance(rows) + results.notes


def provenance(rows: Sequence[Row]) -> list[str]:
    """What the rows have not in common of machine and versions, one sentence each."""
    notes = []
    for key, word, hint in (
        ("machine", "machine", "compare seconds and images/s within one only"),
        ("torch", "torch version", ""),
        ("vit_rpe", "vit_rpe version", "what they compute may differ"),
    ):
        counts: dict[str, int] = {}
        for row in rows:
            counts[row.get(key) or "not recorded"] = counts.get(row.get(key) or "not recorded", 0) + 1
        if len(counts) > 1:
            listed = "; ".join(f"{value} ({count} rows)" for value, count in counts.items())
            notes.append(f"Rows come from more than one {word}: {listed}{f': {hint}' if hint else ''}.")
    return notes
