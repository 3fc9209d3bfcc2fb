"""The floors of the package: who may import whom, who may name an encoding or a kernel, and how large a room may be."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from vit_rpe.attention import KERNELS
from vit_rpe.encodings import list_encodings

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "vit_rpe"
FLOORS = {
    "checks": 0,
    "plugins": 0,
    "precision": 0,
    "position": 1,
    "attention": 2,
    "encodings": 2,
    "layers": 3,
    "models": 4,
    "data": 4,
    "viz": 5,
    "benchmark": 6,
    "training": 6,
    "evaluation": 7,
    "study": 8,
    "commands": 9,
    "cli": 9,
}
FACES = {
    "__init__",
    "_moved",
    "_with_timm",
}  # the package itself, and what importing it sets up, stand above all floors
MODULES = sorted(path for path in PACKAGE.rglob("*.py"))
COLLECTIONS = {"encodings", "models/families", "data/sources", "commands"}  # one item, one file
ROOM = 12
# Beside the encodings and the models that are registered or converted: a benchmark names what it compares.
MAY_NAME_ENCODINGS = re.compile(
    r"^(encodings/|models/vit_rpe\.py$|models/exchange|models/families|benchmark/|commands/benchmark\.py$)"
)
OTHER_MEANINGS = {("viz/recording/fused.py", "rope")}  # timm's name for an argument of its attention
ENCODING_NAMES = set(list_encodings()) - {"none", "bias"}  # these two are also ordinary words
KERNEL_NAMES = set(KERNELS)
OPTIONAL = {  # imported inside functions: they come with an extra, or are heavy and rarely needed
    "accelerate", "albumentations", "cv2", "datasets", "matplotlib", "onnx", "onnxruntime", "onnxscript", "PIL", "rich",
    "sklearn", "submitit", "torchmetrics", "torchvision", "trackio", "transformers", "webdataset",
    "x_transformers", "yaml",
}  # fmt: skip


def place(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def own_part(path: Path) -> str:
    return place(path).removesuffix(".py").split("/")[0]


def part(module: str) -> str:
    """``vit_rpe.models.export`` -> ``models``."""
    return module.split(".")[1] if "." in module else ""


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def modules_by_name() -> dict[str, Path]:
    names = [place(path).removesuffix(".py").replace("/", ".").removesuffix("__init__").rstrip(".") for path in MODULES]
    return {f"vit_rpe.{name}".rstrip("."): path for name, path in zip(names, MODULES, strict=True)}


def name_of(path: Path) -> str:
    return {file: name for name, file in modules_by_name().items()}[path]


@cache
def imports(path: Path) -> list[tuple[str, bool]]:
    """Modules of ours that a file imports, wherever in it (in functions and under ``TYPE_CHECKING`` too), and whether
    the import is at the top of the file."""
    tree, found = parsed(path), []
    at_top = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, id(node) in at_top) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{place(path)}:{node.lineno}: imports are absolute"
            module = node.module or ""
            for alias in node.names:
                inner = f"{module}.{alias.name}"
                found.append((inner if inner in modules_by_name() else module, id(node) in at_top))
    return [(name, top) for name, top in found if name.split(".")[0] == "vit_rpe"]


@pytest.mark.parametrize("path", MODULES, ids=place)
def test_imports_go_down(path: Path) -> None:
    mine = own_part(path)
    if mine in FACES:
        return
    assert mine in FLOORS, f"give {mine} a floor"
    for name, _ in imports(path):
        other = part(name)
        if other in ("", mine):
            continue
        assert FLOORS.get(other, -1) < FLOORS[mine], f"{place(path)} (floor {FLOORS[mine]}) imports {name}"


def test_the_table_of_floors_is_short_and_whole() -> None:
    assert len(FLOORS) <= 16
    assert all(type(floor) is int for floor in FLOORS.values())


def test_no_circles() -> None:
    """Imports inside functions and for type checkers count: who needs each other belongs into one file."""
    graph = {
        name: {other for other, _ in imports(path) if other in modules_by_name()}
        for name, path in modules_by_name().items()
    }
    circles = set()
    for start in graph:
        seen: set[str] = set()
        waiting = list(graph[start])
        while waiting:
            name = waiting.pop()
            if name == start:
                circles.add(start)
                break
            if name not in seen:
                seen.add(name)
                waiting += graph[name]
    assert not circles


def of_an_extra(name: str) -> bool:
    """Whether a module of ours imports an optional package at its top, and so is as optional itself."""
    tops = parsed(modules_by_name()[name]).body if name in modules_by_name() else []
    found = [a.name for node in tops if isinstance(node, ast.Import) for a in node.names]
    found += [node.module or "" for node in tops if isinstance(node, ast.ImportFrom)]
    return any(package.split(".")[0] in OPTIONAL for package in found)


@pytest.mark.parametrize("path", MODULES, ids=place)
def test_imports_inside_functions_are_for_commands_and_extras(path: Path) -> None:
    if own_part(path) in ("commands", *FACES):
        return
    tree = parsed(path)
    for function in ast.walk(tree):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for node in ast.walk(function):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            late = {name.split(".")[0] for name in names if not of_an_extra(name)} - OPTIONAL
            assert not late, f"{place(path)}:{node.lineno} imports {', '.join(sorted(late))} inside a function"


@pytest.mark.parametrize("path", MODULES, ids=place)
def test_private_names_stay_in_their_package(path: Path) -> None:
    for node in ast.walk(parsed(path)):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("vit_rpe"):
            continue
        home = (node.module or "").split(".")
        private = any(word.startswith("_") for word in [*home, *(a.name for a in node.names)])
        owner = ".".join(home[: next((i for i, word in enumerate(home) if word.startswith("_")), len(home))])
        inside = name_of(path) == "vit_rpe" or name_of(path).startswith(owner) or owner == "vit_rpe"
        dunder = all(a.name.startswith("__") for a in node.names)
        assert not private or inside or dunder, f"{place(path)}:{node.lineno} takes a private name of {owner}"


@pytest.mark.parametrize("path", [p for p in MODULES if own_part(p) == "encodings"], ids=place)
def test_encodings_share_only_the_base_files(path: Path) -> None:
    """One paper, one file: an encoding imports the files with a leading underscore and no other encoding."""
    if path.name in ("__init__.py", "combined.py", "frozen.py") or path.name.startswith("_"):
        return
    for name, _ in imports(path):
        if part(name) == "encodings":
            assert name.split(".")[-1].startswith("_"), f"{place(path)} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=place)
def test_only_some_files_name_an_encoding(path: Path) -> None:
    if MAY_NAME_ENCODINGS.match(place(path)):
        return
    for node in strings(path):
        named = node.value in ENCODING_NAMES and (place(path), node.value) not in OTHER_MEANINGS
        assert not named, f"{place(path)}:{node.lineno} names {node.value!r}"
    for name, _ in imports(path):
        if name.startswith("vit_rpe.encodings."):
            assert name.split(".")[2] not in list_encodings(), f"{place(path)} imports {name}"


@pytest.mark.parametrize("path", [p for p in MODULES if own_part(p) in ("layers", "models")], ids=place)
def test_layers_and_models_know_no_kernel(path: Path) -> None:
    for name, _ in imports(path):
        assert not name.startswith(("vit_rpe.attention.kernels", "vit_rpe.attention.cpu")), f"{place(path)}: {name}"
    for node in strings(path):
        assert node.value not in KERNEL_NAMES, f"{place(path)}:{node.lineno} names the kernel {node.value!r}"


@pytest.mark.parametrize("path", MODULES, ids=place)
def test_images_and_text_are_told_apart_in_their_own_folders(path: Path) -> None:
    if place(path).startswith(("data/images", "data/text")):
        return
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
            kinds = {getattr(kind, "id", getattr(kind, "attr", "")) for kind in ast.walk(node.args[1])}
            told = {kind for kind in kinds if kind.startswith(("Text", "ImageData", "ImageSamples", "Preprocessing"))}
            assert not told, f"{place(path)}:{node.lineno} asks for {told}"


def strings(path: Path) -> list[ast.Constant]:
    """String constants that are no docstrings."""
    tree = parsed(path)
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [node for node in constants if id(node) not in prose]


@pytest.mark.parametrize("folder", ["vit_rpe", "tests"])
def test_files_are_short(folder: str) -> None:
    long = {
        path.relative_to(ROOT).as_posix(): count
        for path in (ROOT / folder).rglob("*.py")
        if (count := len(path.read_text().splitlines())) > 400
    }
    assert not long


def test_rooms_are_small() -> None:
    """A room shows about a dozen files, collections apart; few modules lie loose at the root."""
    shown: dict[str, int] = {}
    for path in MODULES:
        if path.name != "__init__.py":
            folder = path.parent.relative_to(PACKAGE).as_posix()
            shown[folder] = shown.get(folder, 0) + 1
    assert shown.pop(".") <= 6
    crowded = {folder: count for folder, count in shown.items() if count > ROOM and folder not in COLLECTIONS}
    assert not crowded


def floors_as_text() -> str:
    """The table of floors as ``docs/design.md`` shows it."""
    lines = []
    for floor in sorted(set(FLOORS.values()), reverse=True):
        lines.append(f"{floor}  {'   '.join(name for name, own in FLOORS.items() if own == floor)}")
    return "\n".join(lines)


def test_the_design_page_shows_the_floors() -> None:
    page = (ROOT / "docs" / "design.md").read_text()
    assert f"```text\n{floors_as_text()}\n```" in page, f"docs/design.md should show:\n{floors_as_text()}"
