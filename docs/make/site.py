"""What the site needs beyond mkdocs: formulas as MathML, notebooks as pages, and the pages above ``docs/``.

mkdocs calls these functions by their names (``hooks`` in mkdocs.yml).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files
from nbconvert import MarkdownExporter
from traitlets.config import Config

ROOT = Path(__file__).resolve().parents[2]
ABOVE = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")


def on_config(config: Any) -> Any:
    """Fences of the language ``math``, which code hosts draw too, become MathML."""
    fences = [{"name": "math", "class": "math", "format": formula}]
    config.mdx_configs["pymdownx.superfences"] = {"custom_fences": fences}
    return config


def formula(source: str, *_: Any, **__: Any) -> str:
    """LaTeX as a displayed formula."""
    together = r"<mo><mrow><mo>(&#x0002B;|&#x02212;)</mo></mrow></mo><mo>&#x0003D;</mo>"  # += and -= are one sign
    return re.sub(together, r"<mo>\1=</mo>", convert(source, display="block"))


def on_files(files: Files, config: Any) -> Files:
    """Add a page for each notebook, and the pages that lie beside the folder."""
    for name in ABOVE:
        files.append(File.generated(config, name, content=(ROOT / name).read_text(encoding="utf-8")))
    for path in sorted((ROOT / "docs" / "tutorials").glob("*.ipynb")):
        text, pictures = notebook_page(path)
        files.append(File.generated(config, f"tutorials/{path.stem}.md", content=text))
        for name, content in pictures.items():
            files.append(File.generated(config, f"tutorials/{name}", content=content))
    return files


def notebook_page(path: Path) -> tuple[str, dict[str, bytes]]:
    """An executed notebook as Markdown, and its pictures by name."""
    exporter = MarkdownExporter(
        config=Config(
            {"ExtractOutputPreprocessor": {"output_filename_template": path.stem + "_{cell_index}_{index}{extension}"}}
        )
    )
    text, resources = exporter.from_notebook_node(nbformat.read(path, as_version=4))
    links = f"[Notebook]({path.stem}.ipynb){{: download}}\n"
    return f"{text.rstrip()}\n\n{links}", resources["outputs"]


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links as the code host needs them, to where the same page lies on the site."""
    if page.file.src_uri in ABOVE:
        return re.sub(r"\]\(docs/", "](", markdown)
    if page.file.src_uri.startswith("tutorials/"):
        markdown = re.sub(r"\]\((\w+)\.ipynb\)(?!\{)", r"](\1.md)", markdown)
    else:
        markdown = re.sub(r"\]\((tutorials/\w+)\.ipynb\)", r"](\1.md)", markdown)
    return re.sub(rf"\]\(((?:\.\./)*)\.\./({'|'.join(map(re.escape, ABOVE))})", r"](\1\2", markdown)
