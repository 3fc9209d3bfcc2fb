"""List every relative position encoding: paper, what it adds, parameters, kernels, other resolutions.

With --pictures, also draw what each encoding of a finished study learned to add to the logits.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from vit_rpe.catalogue import Row, catalogue, markdown_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``vit-rpe encodings``."""
    parser.add_argument("--format", choices=("table", "markdown", "json"), default="table", help="how to print it")
    parser.add_argument("--pictures", metavar="FOLDER", help="draw a picture per encoding into this folder")
    parser.add_argument("--study", metavar="FOLDER", help="the study whose trained models are drawn")
    parser.add_argument("--layer", type=int, default=2, help="the layer drawn, from 0")


def run(args: argparse.Namespace) -> None:
    """Print the table, or draw."""
    if args.pictures is not None:
        if args.study is None:
            raise ValueError("--pictures draws trained models: name a finished study with --study FOLDER")
        _draw(Path(args.pictures), Path(args.study), args.layer)
        return
    rows = catalogue()
    if args.format == "json":
        print(json.dumps([row._asdict() for row in rows], indent=2))
    elif args.format == "markdown":
        print(markdown_table(rows))
    else:
        _print_table(rows)


def _print_table(rows: list[Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Relative position encodings (parameters: ViT-S/16 at 224 px, all layers)", expand=False)
    for heading in ("rpe=", "paper", "adds"):
        table.add_column(heading)
    table.add_column("parameters", justify="right")
    for heading in ("kernels", "at another resolution"):
        table.add_column(heading)
    for row in rows:
        table.add_row(row.name, row.paper, row.adds, f"{row.parameters:,}", row.kernels, row.elsewhere)
    Console().print(table)


def _draw(folder: Path, study: Path, layer: int) -> None:
    import torch

    from vit_rpe.data import DataConfig, build_data, eval_loader
    from vit_rpe.training.checkpoint import load_checkpoint
    from vit_rpe.viz import plot_bias, record

    folder.mkdir(parents=True, exist_ok=True)
    for name in [row.name for row in catalogue() if row.adds]:
        runs = sorted(study.glob(f"cells/{name}-*seed*/last"))
        if not runs:
            print(f"{name}: no finished run in {study / 'cells'}, not drawn")
            continue
        loaded = load_checkpoint(runs[0])
        config = DataConfig(**loaded.info.data)
        preprocessing = loaded.preprocessing
        bundle = build_data(config, img_size=preprocessing.img_size, in_chans=preprocessing.in_chans, seed=0)
        images, _ = next(iter(eval_loader(bundle, config)))
        with torch.no_grad(), record(loaded.model) as seen:
            loaded.model(bundle.to_device_batch(images, "cpu"))
        figure = plot_bias(seen, layers=[layer])
        figure.savefig(folder / f"{name}.png", dpi=110)
        print(f"{name}: {folder / f'{name}.png'} from {runs[0]}")
