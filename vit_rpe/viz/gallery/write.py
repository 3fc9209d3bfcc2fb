"""The gallery of encodings as one HTML file that needs no server, no network and none of the extras.

Each encoding is a file ``page/encodings/NAME.js`` with its formula, where it is good, its sliders, and the same formula
once more as code; paper and properties come from its card. ``tests/viz/test_gallery.py`` holds the code in the browser
to the values of the Python class.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

from vit_rpe.encodings import encoding_class
from vit_rpe.models.catalogue import Row, catalogue
from vit_rpe.viz.page_files import as_json, fill, page_file

__all__ = ["drawn_encodings", "gallery_page"]

PACKAGE = "vit_rpe.viz.gallery"
PAPER = re.compile(r"\s*(?P<title>[^;]*?),?\s*arXiv (?P<id>\d{4}\.\d{4,5})(?P<more>[^;]*)(?:;|$)")


def drawn_encodings() -> list[str]:
    """Names of the encodings that the gallery can draw: ours, not those of plug-ins."""
    folder = files(PACKAGE) / "page" / "encodings"
    return sorted(file.name.removesuffix(".js") for file in folder.iterdir() if file.name.endswith(".js"))


def gallery_page() -> str:
    """The page as text, to be written in UTF-8."""
    names = drawn_encodings()
    scripts = ["tools.js", *(f"encodings/{name}.js" for name in names), "formula.js", "gallery.js"]
    return fill(
        page_file(PACKAGE, "gallery.html"),
        style=page_file(PACKAGE, "gallery.css"),
        data=as_json({row.name: _facts(row) for row in catalogue() if row.name in names}),
        scripts="\n".join(page_file(PACKAGE, name) for name in scripts),
    )


def _facts(row: Row) -> dict[str, Any]:
    card = encoding_class(row.name).card
    papers = [[f"{found['title']}{found['more']}".strip(), found["id"]] for found in PAPER.finditer(row.paper)]
    axes = [f"{count}-D" for count in card.axes]
    return {
        "papers": papers or [[row.paper, ""]] * bool(row.paper),
        "adds": row.adds or "nothing",
        "parameters": row.parameters,
        "kernels": row.kernels,
        "extrapolation": row.extrapolation,
        "axes": ", ".join(axes),
        "cache": card.supports_kv_cache,
    }
