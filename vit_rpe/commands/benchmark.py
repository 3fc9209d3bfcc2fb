"""Measure speed and memory of encodings, interleaved with no position and with other packages.

vit-rpe benchmark --suite readme
vit-rpe benchmark --encodings bias rope alibi --batch-size 1 8 --mode inference training
vit-rpe benchmark --encodings bias alibi --curve
vit-rpe benchmark --against timm
vit-rpe benchmark --profile --encodings bias deberta
vit-rpe benchmark data
"""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from vit_rpe.checks import check_count
from vit_rpe.commands._options import Renamed, add_device, choose_device

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vit_rpe.benchmark.measuring.compare import Result

SUITES = ("readme", "small", "large", "recent", "windowed", "compile", "gpu")
CLOCKS = ("wall", "cpu")

_OF_GRID = ("size", "img_size", "patch_size", "depth", "batch", "mode", "execution", "attn_impl", "device", "dtype")
MEANINGLESS = {
    "suite": ("encodings", "against", "curve", "profile", "largest", "frozen", "memory", *_OF_GRID),
    "curve": ("quick", "against", "profile", "frozen", "memory", "img_size", "patch_size", "depth", "execution"),
    "against": ("quick", "encodings", "profile", "largest", "frozen", "memory", "attn_impl"),
    "profile": ("quick", "largest", "memory", "seconds", "clock", "neighbour"),
    "": ("quick", "largest"),
}
"""Options without effect, by the option that says what is measured."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--suite", choices=SUITES, help="a fixed set of measurements with targets")
    parser.add_argument(
        "--quick", action="store_true", help="with --suite: fewer layers and batches, also without a GPU"
    )
    parser.add_argument("--minutes", type=float, default=6.0, help="with --suite gpu: time of the whole run, about")
    parser.add_argument("--encodings", nargs="+", default=["bias", "rope"], metavar="NAME", help="or 'all'")
    parser.add_argument("--against", metavar="PACKAGE", help="timm, transformers, x-transformers, or all installed")
    parser.add_argument("--curve", action="store_true", help="one attention layer from 7x7 to 128x128 tokens")
    parser.add_argument("--profile", action="store_true", help="torch's operations, beyond those without position")
    parser.add_argument("--largest", type=int, default=128, metavar="SIDE", help="last side of --curve")
    parser.add_argument("--size", nargs="+", default=["small"], help="model sizes: nano, tiny, small, base, large")
    parser.add_argument("--img-size", nargs="+", type=int, default=[224], metavar="PIXELS")
    parser.add_argument("--patch-size", type=int, default=16)
    parser.add_argument("--depth", type=int, help="layers, if not the size's own")
    parser.add_argument("--batch-size", dest="batch", nargs="+", type=int, default=[1], metavar="N")
    parser.add_argument("--batch", nargs="+", type=int, action=Renamed, new="--batch-size")
    parser.add_argument("--mode", nargs="+", default=["inference"], choices=["inference", "training"])
    parser.add_argument("--execution", nargs="+", default=["eager"], choices=["eager", "compiled"])
    parser.add_argument("--frozen", action="store_true", help="positions as constants, model.freeze(); inference only")
    parser.add_argument("--attn-impl", default="auto", help="attention kernel of our models")
    parser.add_argument("--memory", action="store_true", help="also peak memory, in a process for each candidate")
    add_device(parser, default="cpu")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument(
        "--neighbour", action="store_true", help="beside processes that keep every core busy, as on a shared machine"
    )
    parser.add_argument("--threads", type=int, help="CPU threads; default: torch's")
    parser.add_argument("--clock", default="wall", choices=CLOCKS, help="cpu: time of this process only")
    parser.add_argument("--seconds", type=float, default=15.0, help="time of one comparison, about")
    parser.add_argument("--rounds", type=int, default=31, help="most rounds of one comparison")
    parser.add_argument("--output", type=Path, metavar="DIR", help="also write results.md, .csv, .png and summary.md")
    parser.set_defaults(of_models=vars(parser.parse_args([])))
    words = parser.add_subparsers(dest="what", metavar="data", help="instead: images/s of the input side")
    data = words.add_parser("data", description="Images per second of the input side, beside torchvision's transforms.")
    data.add_argument("--setting", nargs="+", default=["memory", "jpeg"], metavar="NAME", help="memory, jpeg")
    data.add_argument(
        "--data.path", dest="path", metavar="DIR", help="a folder of images by class for jpeg; default: made-up files"
    )
    data.add_argument("--path", action=Renamed, new="--data.path")
    data.add_argument("--workers", type=int, default=2, help="loader processes of either side")
    data.add_argument("--images", type=int, default=2000, help="images a measurement; memory takes ten times as many")
    data.add_argument("--batch-size", type=int, default=50)
    data.add_argument("--repeats", type=int, default=3, help="measurements a number; the best counts")


def run(args: argparse.Namespace) -> None:
    """Measure, and print the table.

    Raises:
        ValueError: an unknown name, or a peer that is not installed.
    """
    if args.what == "data":
        return _run_data(args)
    _check(args)
    if args.profile:
        return _run_profile(args)
    import torch

    from vit_rpe.benchmark.gpu_suite import choices
    from vit_rpe.benchmark.measuring.compare import machine
    from vit_rpe.benchmark.measuring.neighbour import neighbour
    from vit_rpe.benchmark.report import markdown

    if args.threads is not None:
        torch.set_num_threads(args.threads)
    with neighbour() if args.neighbour else nullcontext():
        results = _measure(args)
    print(f"{machine(args.clock)}{_beside(args)}\n\n{markdown(results)}")
    if args.suite == "gpu":
        print(f"\n{choices(results)}")
    _save(results, args)
    _draw(results, args.output, curve=args.curve)


def _measure(args: argparse.Namespace) -> list[Result]:
    from vit_rpe.benchmark.compile_suite import compile_suite
    from vit_rpe.benchmark.gpu_suite import gpu_suite
    from vit_rpe.benchmark.grid import measure_curve, measure_grid, measure_peers
    from vit_rpe.benchmark.large_suite import large_suite
    from vit_rpe.benchmark.measuring.compare import Effort
    from vit_rpe.benchmark.readme_suite import readme_suite
    from vit_rpe.benchmark.recent_suite import recent_suite
    from vit_rpe.benchmark.small_suite import small_suite
    from vit_rpe.benchmark.windowed_suite import windowed_suite

    effort = Effort(seconds=args.seconds, rounds=args.rounds, clock=args.clock)
    if args.curve:
        return measure_curve(args, effort, _say)
    if args.against:
        return measure_peers(args, effort, _say)
    if not args.suite:
        return measure_grid(args, effort, _say)
    results: list[Result] = []

    def next_part(text: str) -> None:
        _draw(results, args.output)
        _say(text)

    suites: dict[str, Callable[..., Iterator[Result]]] = {
        "readme": readme_suite,
        "small": small_suite,
        "large": large_suite,
        "recent": recent_suite,
        "windowed": windowed_suite,
        "compile": compile_suite,
        "gpu": partial(gpu_suite, minutes=args.minutes),
    }
    for result in suites[args.suite](effort, quick=args.quick, threads=args.threads, say=next_part):
        results.append(result)
        _save(results, args)
    return results


def _beside(args: argparse.Namespace) -> str:
    return "; beside processes that keep every core busy" if args.neighbour else ""


def _run_profile(args: argparse.Namespace) -> None:
    import torch

    from vit_rpe.benchmark.grid import encoding_names, settings
    from vit_rpe.benchmark.measuring.compare import machine
    from vit_rpe.benchmark.measuring.profile import profile, profile_table

    if args.threads is not None:
        torch.set_num_threads(args.threads)
    parts = []
    for setting, base in settings(args):
        _say(setting)
        jobs = {name: base._replace(subject=name) for name in ("none", *encoding_names(args.encodings))}
        parts.append(f"{setting}\n\n{profile_table(profile(jobs, rounds=args.rounds), 'none')}")
    text = "\n\n".join([machine(), *parts])
    print(text)
    if args.output is not None:
        (args.output / "profile.md").write_text(text + "\n")


def _check(args: argparse.Namespace) -> None:
    kind = next((name for name in ("suite", "curve", "against", "profile") if getattr(args, name)), "")
    for name in MEANINGLESS[kind]:
        if getattr(args, name) != args.of_models[name]:
            where = f"with --{kind}" if kind else f"without --{'suite' if name == 'quick' else 'curve'}"
            raise ValueError(f"{_spelled(name)} means nothing {where}")
    for name in ("size", "batch", "mode"):
        if args.curve and len(getattr(args, name)) > 1:
            raise ValueError(f"--curve takes one {_spelled(name)}, got {' '.join(map(str, getattr(args, name)))}")
    for name in ("img_size", "batch", "patch_size", "depth", "threads", "rounds", "largest"):
        given = getattr(args, name)
        for value in given if isinstance(given, list) else [given]:
            if value is not None:
                check_count(_spelled(name), value)
    if args.minutes != args.of_models["minutes"] and args.suite != "gpu":
        raise ValueError("--minutes means nothing without --suite gpu")
    if not 0 < args.minutes < float("inf"):
        raise ValueError(f"--minutes must be a finite number above 0, got {args.minutes}")
    args.device = str(choose_device(args.device))
    if args.output is not None:
        args.output.mkdir(parents=True, exist_ok=True)  # before anything is measured for it
    if not 0 <= args.seconds < float("inf"):
        raise ValueError(f"--seconds must be a finite number of at least 0, got {args.seconds}")
    if args.frozen and "training" in args.mode:
        raise ValueError("--frozen is for inference: positions that are constants are not trained")


def _spelled(name: str) -> str:
    return "--batch-size" if name == "batch" else f"--{name.replace('_', '-')}"


def _run_data(args: argparse.Namespace) -> None:
    from vit_rpe.benchmark.input_side.throughput import run as measure
    from vit_rpe.benchmark.input_side.throughput import table

    for name, default in args.of_models.items():
        if getattr(args, name) != default:
            raise ValueError(f"{_spelled(name)} is for models and means nothing for 'benchmark data'")
    for name in ("images", "batch_size", "repeats"):
        check_count(_spelled(name), getattr(args, name))
    if args.workers < 0:
        raise ValueError(f"--workers must be at least 0, got {args.workers}")
    if args.path is not None and "jpeg" not in args.setting:
        raise ValueError("--data.path is for --setting jpeg: the images of memory are made up")
    print(
        table(
            measure(
                settings=args.setting,
                num_workers=args.workers,
                num_images=args.images,
                batch_size=args.batch_size,
                repeats=args.repeats,
                path=args.path,
            )
        )
    )


def _say(text: str) -> None:
    print(f"... {text}", flush=True)


def _draw(results: list[Result], folder: Path | None, *, curve: bool = False) -> None:
    """The picture as far as it is known; a suite calls this between its parts, never beside a measurement."""
    if folder is None or not results:
        return
    if find_spec("matplotlib") is None:
        _say("no picture: matplotlib is not installed (pip install 'vit_rpe[viz]')")
        return
    from vit_rpe.benchmark.report import draw_curves, draw_ratios

    (draw_curves if curve else draw_ratios)(results, folder / "results.png")


def _save(results: list[Result], args: argparse.Namespace) -> None:
    """Write the table as far as it is known: a long run that is stopped keeps what it has."""
    folder = args.output
    if folder is None:
        return
    from vit_rpe.benchmark.gpu_suite import choices
    from vit_rpe.benchmark.measuring.compare import machine
    from vit_rpe.benchmark.report import markdown, summary, write_csv

    (folder / "results.md").write_text(f"{machine(args.clock)}{_beside(args)}\n\n{markdown(results)}\n")
    (folder / "summary.md").write_text(f"{machine(args.clock)}{_beside(args)}\n\n{summary(results)}\n")
    if args.suite == "gpu":
        (folder / "choices.md").write_text(f"{machine(args.clock)}{_beside(args)}\n\n{choices(results)}\n")
    write_csv(results, folder / "results.csv")
