"""The pictures of learned position: ``python docs/make/learned_position.py CHECKPOINT``.

CHECKPOINT is that of a run of configs/cifar10/vit_nano_bias_cpu.yaml, or the name of a model that comes with the
package.
With ``--tables FOLDER`` also the moving picture: FOLDER holds ``epoch-0001.safetensors`` ..., the tables after each
epoch, as a run with ``--train.pictures_every 1`` leaves them in ``pictures/epoch-0001/position.safetensors`` ...
The images are scikit-learn's two photographs: the temple by danielbuechele, the flower by vultilion (CC BY 2.0).
"""

from __future__ import annotations

import argparse
import csv
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from PIL import Image
from safetensors.torch import load_file
from sklearn.datasets import load_sample_image
from torch import Tensor, nn

from vit_rpe import TokenGrid, create_encoding, load_run, viz
from vit_rpe.attention import AttentionCall
from vit_rpe.encodings import find_encodings
from vit_rpe.viz.plots.canvas import ATTENTION, SIGNED, bare, new_bar
from vit_rpe.viz.plots.paint import hint_patches, on_dark, outline, overlay, share_colours

PICTURES = Path(__file__).resolve().parents[1] / "pictures"
WIDTH, DPI = 9.0, 100
SIDE, SHOWN = 32, 320
"""Pixels that the model sees, and pixels of the same square that are shown."""
LIMIT = 12
"""Logits at which the colours of tables end: what 12 is added to weighs 160,000 times as much."""
CROPS = {"flower.jpg": (110, 0, 537, 427), "china.jpg": (90, 0, 517, 427)}


def photograph(name: str, side: int) -> Image.Image:
    """A square of one of the two photographs."""
    return Image.fromarray(load_sample_image(name)).crop(CROPS[name]).resize((side, side), Image.Resampling.LANCZOS)


def tables_of(model: nn.Module) -> dict[int, Tensor]:
    """By layer, (heads, 2 M + 1, 2 M + 1), of offsets query minus key."""
    return {layer: rpe.table.detach().float() for layer, (_, rpe) in enumerate(find_encodings(model))}


def start_of(tables: dict[int, Tensor]) -> dict[int, Tensor]:
    """The tables before the first step: the recipe's start draws nothing at random."""
    found = {}
    for layer, table in tables.items():
        side = (table.shape[1] + 1) // 2
        grid = TokenGrid((side, side))
        start: Any = create_encoding({"name": "bias", "init": "impulse"}, len(table), 32, grid)
        found[layer] = start.table.detach().float()
    return found


def around(table: Tensor) -> np.ndarray:
    """By key minus query, as pictures show it."""
    return table.flip(1, 2).numpy()


def offset_panel(panel: Any, values: np.ndarray, *, ticks: tuple[bool, bool], **look: Any) -> Any:
    """One head: values by offset, the query in the middle."""
    reach = values.shape[0] // 2
    drawn = panel.imshow(values, extent=(-reach - 0.5, reach + 0.5, reach + 0.5, -reach - 0.5), **look)
    panel.plot(0, 0, "o", markersize=2, color=look.pop("dot", "black"))
    bare(panel)
    if ticks[0]:
        panel.set_yticks([-reach, 0, reach])
    if ticks[1]:
        panel.set_xticks([-reach, 0, reach])
    panel.tick_params(labelsize=7, length=2)
    return drawn


def learned_bias(model: nn.Module) -> Figure:
    """Every head of every layer: what training added to the start, and where position alone lets it look."""
    tables = tables_of(model)
    start = start_of(tables)
    figure = Figure(figsize=(WIDTH, 5.0), dpi=DPI, layout="constrained")
    left, right = figure.subfigures(1, 2)
    layers, heads = len(tables), len(tables[0])
    grids = [part.subplots(layers, heads, squeeze=False) for part in (left, right)]
    limit = LIMIT
    for layer, table in tables.items():
        added = around(table - start[layer])
        looks = around(table.flatten(1).softmax(dim=1).view_as(table))
        for head in range(heads):
            ticks = (head == 0, layer == layers - 1)
            signed = {"cmap": SIGNED, "vmin": -limit, "vmax": limit}
            drawn = offset_panel(grids[0][layer, head], added[head], ticks=ticks, **signed)
            share = {"cmap": ATTENTION, "norm": LogNorm(looks[head].max() / 100, looks[head].max(), clip=True)}
            offset_panel(grids[1][layer, head], looks[head], ticks=(False, layer == layers - 1), **share)
            grids[1][layer, head].lines[0].set_color("cyan")
            note = f"to {100 * looks[head].max():.0f} %"
            style = {"color": "white", "fontsize": 6.5, "va": "bottom", "ha": "right"}
            grids[1][layer, head].text(0.96, 0.03, note, transform=grids[1][layer, head].transAxes, **style)
            for grid in grids:
                if layer == 0:
                    grid[0, head].set_title(f"head {head}", fontsize=8)
        grids[0][layer, 0].set_ylabel(f"layer {layer}", fontsize=8)
    bar = left.colorbar(drawn, ax=grids[0], location="bottom", shrink=0.8, aspect=40, extend="both")
    bar.set_label("added to the logit by training (red: looks there more)", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    bar = new_bar(right, grids[1], ATTENTION, -2, 0, 0.8, location="bottom")
    bar.set_ticks([-2, -1, 0], labels=["1/100 or less", "1/10", "the largest"], fontsize=7)
    bar.set_label("attention by position alone, over the head's largest", fontsize=8)
    left.suptitle("what training on CIFAR-10 taught each head", fontsize=10)
    right.suptitle("so that by position alone it looks there", fontsize=10)
    for part in (left, right):
        part.supxlabel("key minus query (dot), in patches: right and down", fontsize=8)
    return figure


def attention_of(model: nn.Module, prepare: Any) -> Figure:
    """Where one patch of each photograph looks in the heads of one layer, in percent on one scale."""
    names, queries, layer = list(CROPS), [(3, 3), (4, 4)], 1
    with torch.no_grad(), viz.record(model, device="cpu") as seen:
        model(torch.stack([prepare(photograph(name, SIDE)) for name in names]))
    grid = seen.map_grid(layer)
    maps = [seen.attention(layer, query=query)[index, :, grid.num_prefix :] for index, query in enumerate(queries)]
    top = float(torch.cat(maps).max())
    heads = maps[0].shape[0]
    figure = Figure(figsize=(WIDTH, 3.9), dpi=DPI, layout="constrained")
    axes = figure.subplots(len(names), heads + 1)
    for row, (name, query) in enumerate(zip(names, queries, strict=True)):
        picture = np.asarray(photograph(name, SHOWN)) / 255
        for column, panel in enumerate(axes[row]):
            bare(panel)
            if column == 0:
                panel.imshow(picture)
                hint_patches(panel, picture, grid)
            else:
                overlay(panel, picture, maps[row][column - 1].view(grid.size))
                panel.images[1].set_clim(0, top)
                panel.set_xlabel(f"up to {100 * float(maps[row][column - 1].max()):.0f} %", fontsize=8, labelpad=2)
            outline(panel, picture, grid, query)
            if row == 0:
                panel.set_title("the query" if column == 0 else f"head {column - 1}", fontsize=9)
    bar = new_bar(figure, axes, on_dark(share_colours()), 0, 100 * top)
    bar.set_label(f"attention in layer {layer}, %", fontsize=8)
    bar.ax.tick_params(labelsize=8)
    return figure


def weights_of(encoding: Any, grid: TokenGrid, heads: int, width: int) -> Tensor:
    """Attention (heads, N, N) by position alone: all tokens hold the same."""
    tokens = torch.ones(1, heads, grid.num_tokens, width)
    with torch.no_grad():
        terms = encoding(grid, grid)
        return AttentionCall(tokens, tokens, tokens, terms, None, width**-0.5, lambda out: out).weights()[0]


def untrained(name: str, grid: TokenGrid, heads: int = 8, width: int = 64) -> Tensor:
    """The same of an encoding as it starts."""
    torch.manual_seed(0)
    return weights_of(create_encoding(name, heads, width, grid, depth_index=11, depth=12), grid, heads, width)


def four_encodings(model: nn.Module) -> Figure:
    """The same query under four encodings, position alone, two heads of each."""
    grid, query = TokenGrid((8, 8)), (4, 4)
    token = query[0] * grid.size[1] + query[1]
    _, encoding = list(find_encodings(model))[1]
    learned = weights_of(encoding, grid, encoding.table.shape[0], 32)
    shown = {
        "bias\nlearned: a number an offset": (learned, (1, 3)),
        "alibi\nthe nearer, the more": (untrained("alibi", grid), (0, 1)),
        "lookhere\none direction a head": (untrained("lookhere", grid), (0, 2)),
        "rope_mixed\nturned by the offset": (untrained("rope_mixed", grid), (0, 1)),
    }
    picture = np.asarray(photograph("china.jpg", SHOWN)) / 255
    figure = Figure(figsize=(WIDTH, 4.3), dpi=DPI, layout="constrained")
    axes = figure.subplots(2, len(shown))
    for column, (title, (weights, heads)) in enumerate(shown.items()):
        for row, head in enumerate(heads):
            panel = axes[row, column]
            bare(panel)
            values = weights[head, token].view(grid.size)
            overlay(panel, picture, values)
            outline(panel, picture, grid, query)
            panel.set_xlabel(f"head {head}, up to {100 * float(values.max()):.0f} %", fontsize=8, labelpad=2)
        axes[0, column].set_title(title, fontsize=9)
    bar = new_bar(figure, axes, on_dark(share_colours()), 0, 1)
    bar.set_ticks([0, 1], labels=["0", "largest"], fontsize=8)
    bar.set_label("attention by position alone", fontsize=8, labelpad=-16)
    return figure


def kept_tables(folder: Path) -> dict[int, dict[int, Tensor]]:
    """By epoch and layer, of files ``epoch-0001.safetensors`` or ``epoch-0001/position.safetensors``."""
    found = {}
    for file in sorted([*folder.glob("epoch-*.safetensors"), *folder.glob("epoch-*/position.safetensors")]):
        number = re.search(r"epoch-(\d+)", str(file.relative_to(folder)))
        assert number is not None
        entries = sorted(load_file(file).items())
        found[int(number[1])] = {layer: table.float() for layer, (_, table) in enumerate(entries)}
    return found


def moving(epochs: dict[int, dict[int, Tensor]], accuracy: dict[int, float], target: Path) -> None:
    """What training has added to the start of every head, epoch by epoch."""
    start = start_of(next(iter(epochs.values())))
    epochs = {0: start, **epochs}
    layers, heads = len(start), len(start[0])
    figure = Figure(figsize=(WIDTH, 3.3), dpi=DPI)
    parts = figure.add_gridspec(2, 1, height_ratios=[1, 1], left=0.035, right=0.93, top=0.83, bottom=0.06, hspace=0.32)
    panels: dict[tuple[int, int], Any] = {}
    for layer in range(layers):
        blocks = parts[layer // 2].subgridspec(1, 2, wspace=0.06)
        block = blocks[layer % 2].subgridspec(1, heads, wspace=0.06)
        for head in range(heads):
            panel = figure.add_subplot(block[head])
            signed = {"cmap": SIGNED, "vmin": -LIMIT, "vmax": LIMIT}
            panels[layer, head] = offset_panel(panel, around(start[layer])[head] * 0, ticks=(False, False), **signed)
            panel.set_title(f"layer {layer}, head {head}" if head == 0 else f"head {head}", fontsize=7.5, pad=3)
    scale = figure.add_axes((0.945, 0.1, 0.012, 0.7))
    bar = figure.colorbar(panels[0, 0], cax=scale, extend="both")
    bar.ax.tick_params(labelsize=7)
    title = figure.text(0.5, 0.955, "", ha="center", va="center", fontsize=11)
    figure.text(0.5, 0.9, "what training has added to the logit at every offset (dot: the query; red: looks there "
                "more, blue: less)", ha="center", va="center", fontsize=8.5, color="0.35")  # fmt: skip
    canvas, frames = FigureCanvasAgg(figure), []
    last = max(epochs)
    for epoch, tables in epochs.items():
        for (layer, head), drawn in panels.items():
            drawn.set_data(around(tables[layer] - start[layer])[head])
        reached = f": {100 * accuracy[epoch]:.1f} % of the test images right" if epoch in accuracy else ""
        title.set_text(f"CIFAR-10, epoch {epoch} of {last}{reached}" if epoch else "before training: heads look at "
                       "the patch itself and its neighbours above, right and left")  # fmt: skip
        canvas.draw()
        frames.append(Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3].copy()))
    times = [1800] + [450] * (len(frames) - 2) + [3500]
    frames[0].save(target, save_all=True, append_images=frames[1:], duration=times, loop=0, quality=80, method=4)
    print(target, f"{target.stat().st_size / 1e3:.0f} kB, {len(frames)} frames")


def main() -> None:
    """Draw and write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", help="of a run, or the name of a model that comes with the package")
    parser.add_argument("--tables", type=Path, help="folder of the tables by epoch, for the moving picture")
    parser.add_argument("--metrics", type=Path, help="metrics.csv of the run, for the accuracy in the moving picture")
    parser.add_argument("--output", type=Path, default=PICTURES)
    args = parser.parse_args()
    run = load_run(args.checkpoint)
    model = run.model.eval()
    drawn = {
        "learned_bias": learned_bias(model),
        "attention_photographs": attention_of(model, run.preprocessing),
        "four_encodings": four_encodings(model),
    }
    for name, figure in drawn.items():
        file = args.output / f"{name}.{'png' if name == 'learned_bias' else 'webp'}"  # photographs are large as PNG
        figure.savefig(file, dpi=150, **({} if file.suffix == ".png" else {"pil_kwargs": {"quality": 90}}))
        print(file, f"{file.stat().st_size / 1e3:.0f} kB")
    if args.tables is not None:
        accuracy = {}
        if args.metrics is not None:
            rows = csv.DictReader(args.metrics.open())
            accuracy = {int(row["epoch"]): float(row["test_accuracy"]) for row in rows}
        moving(kept_tables(args.tables), accuracy, args.output / "position_learned.webp")


if __name__ == "__main__":
    main()
