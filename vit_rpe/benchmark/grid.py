"""Free comparisons: encodings x sizes x images x batches x modes, against peers, and along the number of tokens."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from itertools import product

from vit_rpe.benchmark.candidates.jobs import Job
from vit_rpe.benchmark.candidates.peers import absent, peers_of
from vit_rpe.benchmark.measuring.compare import Effort, Result, compare_memory, compare_times
from vit_rpe.benchmark.measuring.memory import measure_peak
from vit_rpe.encodings import list_encodings, parse_spec

SIDES = (7, 14, 24, 32, 48, 64, 96, 128)
Say = Callable[[str], None]


def measure_grid(args: argparse.Namespace, effort: Effort, say: Say) -> list[Result]:
    """Every encoding over ``none``, in every setting the options ask for."""
    results = []
    names = encoding_names(args.encodings)
    for setting, base in settings(args):
        say(setting)
        jobs = {name: base._replace(subject=name) for name in ("none", *names)}
        rows = compare_times(jobs, dict.fromkeys(names, "none"), setting, effort)
        if args.memory:
            peaks = {row.name: row for row in compare_memory(jobs, "none", setting, threads=args.threads)}
            rows = [
                row._replace(peak=peaks[row.name].peak, reference_peak=peaks[row.name].reference_peak) for row in rows
            ]
        results += rows
    return results


def measure_peers(args: argparse.Namespace, effort: Effort, say: Say) -> list[Result]:
    """Our model over each peer's with the same encoding and size.

    Raises:
        ValueError: an unknown package, or one that is not installed.
    """
    results = []
    if args.against == "all":
        for package in absent():
            say(f"{package} is not installed here (pip install {package}): its models are left out")
    for (setting, base), (peer, _) in product(settings(args), peers_of(args.against).items()):
        say(f"{setting}, {peer}")
        pair = {
            f"ours for {peer}": base._replace(subject="counterpart", peer=peer),
            peer: base._replace(subject=peer, peer=peer),
        }
        results += compare_times(pair, {f"ours for {peer}": peer}, setting, effort)
    return results


def measure_curve(args: argparse.Namespace, effort: Effort, say: Say) -> list[Result]:
    """Time and peak memory of one attention layer against the number of tokens."""
    results: list[Result] = []
    training = "training" in args.mode
    for side in [side for side in SIDES if side <= args.largest]:
        say(f"{side}x{side} tokens")
        jobs = {
            name: Job(
                name,
                what="layer",
                size=args.size[0],
                img_size=side,
                patch_size=1,
                batch=args.batch[0],
                training=training,
                attn_impl=args.attn_impl,
                device=args.device,
                dtype=args.dtype,
            )
            for name in ("none", *encoding_names(args.encodings))
        }
        references = {name: "none" for name in jobs if name != "none"}
        rows = compare_times(jobs, references, f"{side}x{side}", effort._replace(least=3))
        peaks = {name: measure_peak(job, threads=args.threads) for name, job in jobs.items()}
        results += [row._replace(peak=peaks[row.name], reference_peak=peaks["none"]) for row in rows]
    return results


def encoding_names(given: list[str]) -> list[str]:
    """The encodings asked for, checked.

    Raises:
        ValueError: an unknown name.
    """
    names = list_encodings() if given == ["all"] else given
    return [name for name in (parse_spec(name)["name"] for name in names) if name != "none"]


def settings(args: argparse.Namespace) -> Iterator[tuple[str, Job]]:
    """Every combination of the options, in words and as a job whose subject is still to be named."""
    for size, img_size, batch, mode, execution in product(
        args.size, args.img_size, args.batch, args.mode, args.execution
    ):
        words = f"{size}, {img_size} px, batch {batch}, {mode}, {execution}" + ", frozen" * args.frozen
        yield (
            words,
            Job(
                "none",
                size=size,
                img_size=img_size,
                patch_size=args.patch_size,
                depth=args.depth,
                batch=batch,
                training=mode == "training",
                compiled=execution == "compiled",
                frozen=args.frozen,
                attn_impl=args.attn_impl,
                device=args.device,
                dtype=args.dtype,
            ),
        )
