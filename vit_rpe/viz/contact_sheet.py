"""Figures on one HTML page without anything beside it."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE = (
    ":root{color-scheme:light dark}body{font:16px/1.4 system-ui,sans-serif;max-width:1200px;margin:1rem auto;"
    "padding:0 1rem}img{max-width:100%;background:#fff;border-radius:6px}figure{margin:0 0 2rem}"
)


def contact_sheet(drawn: Iterable[tuple[str, Figure]], *, title: str) -> str:
    """The page as text; names and title are shown as text, whatever they contain."""
    parts = []
    for name, figure in drawn:
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=130)
        data = base64.b64encode(file.getvalue()).decode("ascii")
        text = html.escape(name)
        parts.append(f'<figure><h2>{text}</h2><img alt="{text}" src="data:image/png;base64,{data}"></figure>')
    head, body = html.escape(title), "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{head}</title><style>{_STYLE}</style></head>\n<body><h1>{head}</h1>\n{body}\n</body></html>\n"
    )
