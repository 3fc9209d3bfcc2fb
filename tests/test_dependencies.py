"""Every package that is imported is declared, in the extra that the importing room belongs to."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

tomllib = pytest.importorskip("tomllib")

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "vit_rpe"
DISTRIBUTIONS = {
    "PIL": "pillow",
    "cv2": "opencv-python-headless",
    "sklearn": "scikit-learn",
    "ruamel": "ruamel.yaml",
    "yaml": "pyyaml",
}
"""Where the name to import is not the name to install."""
EXTRAS = {
    **dict.fromkeys(("position", "attention", "encodings", "layers"), ()),
    "models": ("export", "hf"),
    "viz": ("viz",),
    "benchmark": ("train", "viz", "data", "dev", "peers"),  # it runs other people's implementations beside ours
}
"""Extras a room may use; the rooms above these come with all that users have."""
ALL = ("train", "viz", "data", "export", "hf", "slurm", "trackers")


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def declared(extras: tuple[str, ...]) -> set[str]:
    lines = list(project()["dependencies"])
    for extra in extras:
        lines += project()["optional-dependencies"][extra]
    return {re.split(r"[\[<>=~! ]", line)[0].lower() for line in lines}


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    roots = {name.split(".")[0] for name in names}
    return {
        DISTRIBUTIONS.get(name, name).replace("_", "-")
        for name in roots - sys.stdlib_module_names - {"vit_rpe", "__future__"}
    }


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_imports_are_declared(path: Path) -> None:
    room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    missing = imported(path) - declared(EXTRAS.get(room, ALL))
    assert not missing, f"declare {', '.join(sorted(missing))} in pyproject.toml, or do without"


def test_bounds_from_below() -> None:
    lines = [*project()["dependencies"], *(line for own in project()["optional-dependencies"].values() for line in own)]
    assert [line for line in lines if ">=" not in line and not line.startswith("vit_rpe[")] == []
