"""List every relative position encoding: paper, what it adds, parameters, kernels, other resolutions.

With --pictures, draw what each encoding adds to the logits at its initial parameters, by offset; with --gallery, write
one HTML page that draws them all with sliders; with --bibtex, print the papers to cite for one.
"""

from __future__ import annotations

import argparse
import json
import shutil
import textwrap
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vit_rpe.models.catalogue import Row

HEADINGS = ("rpe=", "parameters", "paper", "adds", "kernels", "at another resolution")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--format", choices=("table", "markdown", "json"), default="table", help="how to print it")
    parser.add_argument("--pictures", metavar="FOLDER", help="instead: draw a picture per encoding into this folder")
    parser.add_argument("--gallery", metavar="FILE", help="instead: write the page that draws them all with sliders")
    parser.add_argument("--bibtex", metavar="NAME", help="instead: the papers of one encoding as BibTeX entries")


def run(args: argparse.Namespace) -> None:
    """Print the table, or draw."""
    from vit_rpe.encodings import bibtex
    from vit_rpe.models.catalogue import catalogue, markdown_table

    instead = {"--pictures": args.pictures, "--gallery": args.gallery, "--bibtex": args.bibtex}
    asked = [option for option, value in instead.items() if value is not None]
    if len(asked) > 1:
        raise ValueError(f"{' and '.join(asked)} are two different things: give one")
    if asked and args.format != "table":
        does = {"--pictures": "draws", "--gallery": "draws", "--bibtex": "prints entries"}[asked[0]]
        raise ValueError(f"--format {args.format} is for the table, {asked[0]} {does} instead")
    if args.bibtex is not None:
        print(bibtex(args.bibtex))
        return
    if args.pictures is not None:
        _draw(Path(args.pictures))
        return
    if args.gallery is not None:
        _write_gallery(Path(args.gallery))
        return
    rows = catalogue()
    if args.format == "json":
        print(json.dumps([row._asdict() for row in rows], indent=2))
    elif args.format == "markdown":
        print(markdown_table(rows))
    else:
        print(text_table(rows, shutil.get_terminal_size().columns))


def text_table(rows: list[Row], width: int) -> str:
    """The rows as columns of text; no word is cut at any width.

    Args:
        width: of the terminal in characters.
    """
    cells = [HEADINGS] + [
        (row.name, f"{row.parameters:,}", row.paper, row.adds or "nothing", row.kernels, row.extrapolation)
        for row in rows
    ]
    columns = list(zip(*cells, strict=True))
    widths = [max(len(word) for cell in column for word in cell.split()) for column in columns]
    wanted = [max(map(len, column)) - size for column, size in zip(columns, widths, strict=True)]
    spare = max(0, width - sum(widths) - 2 * (len(widths) - 1))
    share = min(1.0, spare / sum(wanted))
    widths = [size + int(share * more) for size, more in zip(widths, wanted, strict=True)]
    lines = ["Relative position encodings (parameters: ViT-S/16 at 224 px, all layers)", ""]
    for row in cells:
        wrapped = [
            textwrap.wrap(cell, size, break_long_words=False, break_on_hyphens=False) or [""]
            for cell, size in zip(row, widths, strict=True)
        ]
        for parts in zip_longest(*wrapped, fillvalue=""):
            aligned = [
                part.rjust(size) if column == 1 else part.ljust(size)
                for column, (part, size) in enumerate(zip(parts, widths, strict=True))
            ]
            lines.append("  ".join(aligned).rstrip())
        if share < 1:
            lines.append("")
    return "\n".join(lines).rstrip()


def _write_gallery(path: Path) -> None:
    from vit_rpe.viz.gallery import gallery_page

    if path.is_dir():
        raise ValueError(f"--gallery {path} is a folder: name the file to write")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(gallery_page(), encoding="utf-8")
    print(f"{path}  {path.stat().st_size / 1e3:.0f} kB")


def _draw(folder: Path) -> None:
    """A picture per encoding: a 9 x 13 grid, four heads, seed 0, every token with the same random q and k."""
    import matplotlib  # noqa: F401  (told before anything is computed for it)
    import torch

    from vit_rpe import TokenGrid, create_encoding
    from vit_rpe.attention import AttentionCall
    from vit_rpe.models.catalogue import catalogue
    from vit_rpe.viz import by_offset, picture_range
    from vit_rpe.viz.plots.bias import plot_signed

    folder.mkdir(parents=True, exist_ok=True)
    grid, heads, width = TokenGrid((9, 13)), 4, 32
    for name in [row.name for row in catalogue() if row.adds]:
        torch.manual_seed(0)
        encoding = create_encoding(name, heads, width, grid)
        for parameter in encoding.parameters():
            if not parameter.any():
                torch.nn.init.trunc_normal_(parameter, std=0.02)  # what starts at zero would show nothing
        content = torch.randn(2, 1, heads, 1, width).expand(-1, -1, -1, grid.num_tokens, -1)
        with torch.no_grad():
            terms = encoding(grid, grid)
        call = AttentionCall(content[0], content[1], content[1], terms, None, width**-0.5, lambda out: out)
        values = by_offset(call.position_logits()[0].detach(), grid, grid)
        hidden = ~values.isfinite()
        mean = values.masked_fill(hidden, float("nan")).nanmean(dim=(1, 2), keepdim=True)  # a softmax ignores it
        low, sizes = picture_range(grid, grid)
        extent = (low[1] - 0.5, low[1] + sizes[1] - 0.5, low[0] + sizes[0] - 0.5, low[0] - 0.5)
        panels = [(f"head {head}", (values - mean)[head]) for head in range(heads)]
        title = f"{name}: added to the logit, less its mean\nrow dh, column dw, key minus query (dot: the query)"
        plot_signed([panels], [""], title=title, extents=[extent]).savefig(folder / f"{name}.png", dpi=110)
        print(folder / f"{name}.png")
