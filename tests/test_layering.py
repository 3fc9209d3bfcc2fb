"""The floors of the package: who may import whom, who may name an encoding, and how long a file may be."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from vit_rpe.encodings import list_encodings

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "vit_rpe"
FLOORS = {
    "suggest": 0,
    "checks": 0,
    "precision": 0,
    "resampling": 0,
    "memory": 0,
    "sharing": 0.1,
    "geometry": 0.2,
    "toeplitz": 0.5,
    "masks": 1,
    "terms": 1,
    "sections": 1.5,
    "attention": 2,
    "encodings": 2,
    "scalar_bias": 3,
    "absolute": 3,
    "cache": 2,
    "layer_options": 2.5,
    "layers": 3,
    "models": 4,
    "data": 4,
    "catalogue": 4,
    "viz": 5,
    "benchmark": 5,
    "training": 6,
    "study": 6.5,
    "cli": 7,
    "commands": 7,
}
MODULES = sorted(path for path in PACKAGE.rglob("*.py"))
# Beside the encodings and the models that are registered or converted: a benchmark names what it compares.
MAY_NAME_ENCODINGS = re.compile(r"^(encodings/|models/vit_rpe\.py$|models/convert|benchmark/|commands/benchmark\.py$)")
OTHER_MEANINGS = {("viz/fused.py", "rope")}  # timm's name for an argument of its attention
ENCODING_NAMES = set(list_encodings()) - {"none", "bias"}  # these two are also ordinary words


def place(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def part(module: str) -> str:
    """``vit_rpe.models.vit`` -> ``models``."""
    return module.split(".")[1] if "." in module else ""


def absolute(node: ast.ImportFrom, path: Path) -> str:
    """The full name of the module in ``from module import ...``, leading dots resolved."""
    if node.level == 0:
        return node.module or ""
    folder = ["vit_rpe", *place(path).split("/")[:-1]]
    return ".".join([*folder[: len(folder) - node.level + 1], *filter(None, [node.module])])


def imported(path: Path) -> list[str]:
    """Modules of ours that a file imports, wherever in it."""
    found = []
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = absolute(node, path)
            found += [f"{module}.{alias.name}" for alias in node.names] if module == "vit_rpe" else [module]
    return [name for name in found if name.split(".")[0] == "vit_rpe"]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def own_part(path: Path) -> str:
    return place(path).removesuffix(".py").split("/")[0]


@pytest.mark.parametrize("path", MODULES, ids=place)
def test_imports_go_down(path: Path) -> None:
    mine = own_part(path)
    if mine == "__init__":
        return
    assert mine in FLOORS, f"give {mine} a floor"
    for name in imported(path):
        other = part(name)
        if other in ("", mine) or name == "vit_rpe.__version__":
            continue
        assert FLOORS.get(other, -1) < FLOORS[mine], f"{place(path)} (floor {FLOORS[mine]}) imports {name}"


@pytest.mark.parametrize("path", [p for p in MODULES if own_part(p) == "encodings"], ids=place)
def test_encodings_share_only_the_base_files(path: Path) -> None:
    if path.name in ("__init__.py", "combined.py"):
        return
    for name in imported(path):
        if part(name) == "encodings":
            assert name.split(".")[-1] in ("_base", "_relative"), f"{place(path)} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=place)
def test_no_circle_inside_a_package(path: Path) -> None:
    by_name = modules_by_name()
    start = {file: name for name, file in by_name.items()}[path]
    seen, waiting = set(), [start]
    while waiting:
        for name in imported_at_the_top(by_name[waiting.pop()]):
            assert name != start or path.name == "__init__.py", f"{start} imports itself in the end"
            if name in by_name and name not in seen and part(name) == part(start):
                seen.add(name)
                waiting.append(name)


@cache
def modules_by_name() -> dict[str, Path]:
    names = [place(path).removesuffix(".py").replace("/", ".").removesuffix(".__init__") for path in MODULES]
    return {f"vit_rpe.{name}": path for name, path in zip(names, MODULES, strict=True)}


@cache
def imported_at_the_top(path: Path) -> list[str]:
    """Modules a file needs before it can be used; imports inside functions come later."""
    found = []
    for node in parsed(path).body:
        if isinstance(node, ast.ImportFrom):
            found.append(absolute(node, path))
    return [name for name in found if name.startswith("vit_rpe.")]


@pytest.mark.parametrize("path", MODULES, ids=place)
def test_only_some_files_name_an_encoding(path: Path) -> None:
    if MAY_NAME_ENCODINGS.match(place(path)):
        return
    tree = parsed(path)
    prose = docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            named = node.value in ENCODING_NAMES and (place(path), node.value) not in OTHER_MEANINGS
            assert not named, f"{place(path)}:{node.lineno} names {node.value!r}"
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vit_rpe.encodings."):
            assert node.module.split(".")[2] not in list_encodings(), f"{place(path)} imports {node.module}"


def docstrings(tree: ast.AST) -> set[int]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            found.add(id(node.value))
    return found


@pytest.mark.parametrize("folder", ["vit_rpe", "tests"])
def test_files_are_short(folder: str) -> None:
    long = {
        path.relative_to(ROOT).as_posix(): count
        for path in (ROOT / folder).rglob("*.py")
        if (count := len(path.read_text().splitlines())) > 400
    }
    assert not long
