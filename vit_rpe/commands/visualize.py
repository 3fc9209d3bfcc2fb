"""Draw what a model attends to: overlays, rollout, distances, the encoding itself, content against position."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from vit_rpe.commands._inputs import load_images, validation_text
from vit_rpe.commands._model import NamedModel, told_of_size
from vit_rpe.commands._named_model import add_model_arguments, load_model
from vit_rpe.commands._options import add_output, number_of_class, numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from vit_rpe.viz import Recording

__all__ = ["add_arguments", "run"]

Drawn = Iterator[tuple[str, "Figure"]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_model_arguments(parser)
    parser.add_argument("--text", metavar="TEXT", help="for a model of text: what it reads; default: validation text")
    parser.add_argument("--query", metavar="WHERE", help="a patch such as 5,9, 'class', or 'mean' (default)")
    parser.add_argument("--layers", metavar="N,...", help="such as 0,3,6-8; default: all")
    parser.add_argument("--heads", metavar="N,...", help="such as 0,3,6-8; default: all")
    parser.add_argument("--target", metavar="CLASS", help="also draw gradient-weighted attention for this class")
    parser.add_argument("--format", choices=("png", "svg", "html"), default="png", help="html: one page with all")
    add_output(parser, default="pictures", metavar="DIR", help="folder of the pictures", once="--out")


def run(args: argparse.Namespace) -> None:
    """Record the model and write the pictures."""
    import matplotlib  # noqa: F401  (told before anything is computed for it)

    named = load_model(args)
    drawn = (_draw_images if named.treatment.shows_pictures else _draw_text)(named, args)
    folder = Path(args.output)
    if args.format == "html":
        from vit_rpe.viz.contact_sheet import contact_sheet

        page = contact_sheet(drawn, title=named.title)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pictures.html").write_text(page, encoding="utf-8")
        print(folder / "pictures.html")
        return
    for name, figure in drawn:
        folder.mkdir(parents=True, exist_ok=True)
        figure.savefig(folder / f"{name}.{args.format}", dpi=130)
        figure.clear()  # its parts refer to each other: without this many figures would wait for the collector
        print(folder / f"{name}.{args.format}")


def _draw_images(named: NamedModel, args: argparse.Namespace) -> Drawn:
    import torch

    from vit_rpe import viz
    from vit_rpe.viz.plots.asked import asked_of
    from vit_rpe.viz.recording.query import parse_query

    if args.text is not None:
        raise ValueError(f"{named.title} takes images, not text: use --image")
    query = parse_query(args.query or "mean")
    inputs, pixels, names = load_images(named, args.image)
    target = None if args.target is None else number_of_class(args.target, named.class_names)
    with told_of_size(named):
        if target is None:
            with torch.no_grad(), viz.record(named.model) as seen:
                named.model(inputs)
        else:
            seen = viz.record_class(named.model, inputs, target)
    layers = numbers(args.layers, "layer", len(seen))
    chosen = range(len(seen)) if layers is None else layers
    heads = numbers(args.heads, "head", max(map(seen.heads, chosen)))
    last = next((layer for layer in reversed(chosen) if not seen.pools(layer)), chosen[-1])
    seen.attention(last, query=asked_of(seen, last, query))  # a wrong query is told before anything is written
    for image, label in enumerate(_labels(names)):
        for maps in ("attention", "content", "position") + (("gradient_weighted",) if target is not None else ()):
            yield (
                f"{label}-{maps}",
                viz.plot_layers(seen, pixels, image=image, layers=layers, heads=heads, query=query, maps=maps),
            )
        yield (
            f"{label}-split",
            viz.plot_split(seen, pixels, image=image, layer=last, heads=heads, query=query),
        )
    yield "rollout", viz.plot_rollout(seen, pixels, query=query, names=names)
    yield from _draw_encoding(seen, layers, heads)


def _draw_text(named: NamedModel, args: argparse.Namespace) -> Drawn:
    import torch

    from vit_rpe import viz
    from vit_rpe.data import text_treatment

    treatment = text_treatment(named.treatment, named.title)
    for option in ("image", "img_size", "query", "target"):
        if getattr(args, option):
            raise ValueError(f"--{option.replace('_', '-')} is for models of images, {named.title} takes text")
    if args.text == "":
        raise ValueError("--text is empty")
    if args.text is None:
        tokens = validation_text(named)
    else:
        tokens = torch.as_tensor(treatment.encode(args.text)[: treatment.length])[None]
    with torch.no_grad(), viz.record(named.model) as seen:
        named.model(treatment.normalize(tokens).to(named.device))
    layers = numbers(args.layers, "layer", len(seen))
    heads = numbers(args.heads, "head", seen.num_heads)
    prefix = seen.grids(0)[0].num_prefix
    labels = ["class token"] * prefix + list(treatment.decode(tokens[0]))
    for layer in range(len(seen)) if layers is None else layers:
        yield f"tokens-layer{layer}", viz.plot_tokens(seen, labels, layer=layer, heads=heads)
    yield from _draw_encoding(seen, layers, heads)


def _draw_encoding(seen: Recording, layers: list[int] | None, heads: list[int] | None) -> Drawn:
    from vit_rpe import viz

    chosen = [layer for layer in (range(len(seen)) if layers is None else layers) if not seen.pools(layer)]
    if not chosen:
        print("no pictures of distance and bias: layers that pool have queries that are nowhere on the image")
        return
    yield "distance", viz.plot_distance(seen, layers=chosen)
    if any(bool(seen.by_offset(layer).nan_to_num().any()) for layer in chosen):
        yield "bias", viz.plot_bias(seen, layers=chosen, heads=heads)
    else:
        print("no bias picture: these layers add nothing for position to their logits")
    if all(seen.some_terms(layer).rotate_q is not None for layer in chosen):
        yield "frequencies", viz.plot_frequencies(seen, layers=chosen)


def _labels(names: list[str]) -> list[str]:
    """A file name's stem for each image, letters, digits, ``.`` and ``_`` only, numbered where they repeat."""
    labels: list[str] = []
    for name in names:
        stem = "".join(letter if letter.isalnum() or letter in "._" else "_" for letter in Path(name).stem)
        again = sum(label == stem or label.startswith(f"{stem}.") for label in labels)
        labels.append(f"{stem}.{again + 1}" if again else stem)
    return labels
