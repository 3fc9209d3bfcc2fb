"""Pages that are one HTML file: their parts lie beside the code and are filled into a template."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

__all__ = ["as_json", "fill", "page_file"]


def page_file(package: str, name: str) -> str:
    """The text of a file in the folder ``page`` of one of our packages."""
    return (files(package) / "page" / name).read_text(encoding="utf-8")


def fill(template: str, **parts: str) -> str:
    """Replace each ``{{name}}`` of the template once; what is filled in is not looked at again."""
    pieces = template.split("{{")
    filled = [pieces[0]]
    for piece in pieces[1:]:
        name, rest = piece.split("}}", 1)
        filled += [parts[name], rest]
    return "".join(filled)


def as_json(data: Any) -> str:
    """Data as JSON that cannot end the script element it stands in."""
    return json.dumps(data, ensure_ascii=True, separators=(",", ":")).replace("<", "\\u003c")
