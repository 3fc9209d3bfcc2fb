"""Which kernel is fastest on a GPU: ``vit-rpe benchmark --suite gpu --minutes 6``.

ViT-S at 224 and 1024 px, batch 1 and 64, bfloat16, eager and compiled, inference and training: every kernel that can
compute an encoding, beside no position and timm. Layers are alike, three tell what twelve would.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

import torch

from vit_rpe.attention import kernels_for
from vit_rpe.benchmark.candidates.jobs import Job, callable_of
from vit_rpe.benchmark.measuring.compare import Effort, Result
from vit_rpe.benchmark.measuring.memory import Peak
from vit_rpe.benchmark.measuring.timing import interleave
from vit_rpe.encodings import create_encoding
from vit_rpe.position.geometry import TokenGrid

ENCODINGS: dict[str, str | None] = {
    "bias": "timm relpos table",
    "decomposed": None,
    "rope": "timm rope axial",
    "lookhere": None,
}
"""One of each kind (table over offsets, content, rotation, a bias of all pairs), and timm's model with the same."""

CLOSE = 1.05
"""``auto`` errs where it takes more than this many times what the fastest kernel takes, and by more than noise."""

Say = Callable[[str], None]


class Sizes(NamedTuple):
    """What is measured: everything on a GPU, or enough to see that all works."""

    base: Job
    images: tuple[int, ...]
    batches: tuple[int, ...]
    encodings: tuple[str, ...]
    compiled: int | None
    """Candidates of a compiled setting, the first ones; None for all that there is time for."""


FULL = Sizes(Job("none", depth=3, device="cuda", dtype="bfloat16"), (224, 1024), (1, 64), tuple(ENCODINGS), None)
TINY = Job("none", size="nano", patch_size=8, depth=1, dtype="bfloat16")
QUICK = Sizes(TINY, (32,), (1, 4), ("bias", "decomposed"), 2)


class Ready(NamedTuple):
    """A candidate that has run: how to call it again, and what a call takes of memory."""

    work: Callable[[], None]
    peak: Peak | None


def gpu_suite(effort: Effort, *, quick: bool, threads: int | None, say: Say, minutes: float = 6.0) -> Iterator[Result]:
    """Every row there is time for, as it is measured.

    Args:
        effort: a comparison takes its ``seconds`` at most, less where many are still to come.
        quick: tiny models on the GPU or CPU, to see that all works; not for publication.
        threads: not needed, for no process is started.
        say: told what is being measured, and what is left out.
        minutes: no setting is begun after these, and one that is begun has its share of them; a quick run leaves out no
            candidate for want of time.

    Raises:
        ValueError: there is no GPU, and it is not quick.
    """
    if not quick and not torch.cuda.is_available():
        raise ValueError("--suite gpu needs a GPU, and torch sees none; with --quick it runs on the CPU")
    sizes = QUICK if quick else FULL
    if torch.cuda.is_available():
        sizes = sizes._replace(base=sizes.base._replace(device="cuda"))
    end = time.monotonic() + 60 * minutes
    todo = list(_settings(sizes))
    for number, (setting, base) in enumerate(todo):
        now = time.monotonic()
        if now >= end:
            say(f"no time left for: {'; '.join(words for words, _ in todo[number:])}")
            return
        say(setting)
        until = now + (float("inf") if quick else (end - now) / (len(todo) - number))
        jobs = list(_jobs(base, sizes))
        if base.compiled:
            jobs = jobs[: sizes.compiled]
        yield from _compared(setting, jobs, effort, until, say)


def choices(results: Sequence[Result]) -> str:
    """Markdown: the fastest kernel of every setting and encoding, and where ``auto`` takes longer."""
    found: dict[tuple[str, str], dict[str, Result]] = {}
    for result in results:
        encoding, _, kernel = result.name.removesuffix(")").partition(" (")
        if encoding in ENCODINGS and kernel:
            found.setdefault((result.setting, encoding), {})[kernel] = result
    lines = ["| setting | encoding | fastest | `auto` over it | |", "|---|---|---|---:|---|"]
    for (setting, encoding), by_kernel in found.items():
        auto = by_kernel.pop("auto", None)
        if auto is None or not by_kernel:
            continue
        fastest = min(by_kernel, key=lambda kernel: by_kernel[kernel].seconds)
        ratio = auto.seconds / by_kernel[fastest].seconds
        mine, best = auto.time, by_kernel[fastest].time
        errs = ratio > CLOSE and mine is not None and best is not None and mine.low > best.high
        lines.append(f"| {setting} | {encoding} | `{fastest}` | {ratio:.2f}x | {'errs' if errs else ''} |")
    return "\n".join(lines)


def _settings(sizes: Sizes) -> Iterator[tuple[str, Job]]:
    for compiled, img_size, batch, training in product((False, True), sizes.images, sizes.batches, (False, True)):
        words = f"{img_size} px, batch {batch}, {'training step' if training else 'inference'}"
        job = sizes.base._replace(img_size=img_size, batch=batch, training=training, compiled=compiled)
        yield f"{words}, {'compiled' if compiled else 'eager'}", job


def _jobs(base: Job, sizes: Sizes) -> Iterator[tuple[str, Job]]:
    """The candidates of a setting, those first that matter most where time is short."""
    yield "none", base
    yield from ((f"{name} (auto)", base._replace(subject=name)) for name in sizes.encodings)
    for name in sizes.encodings:
        for kernel in reversed(_kernels(name, base)):
            yield f"{name} ({kernel})", base._replace(subject=name, attn_impl=kernel)
        peer = ENCODINGS[name]
        if peer is not None:
            yield peer, base._replace(subject=peer, peer=peer)


def _kernels(name: str, base: Job) -> list[str]:
    side = base.img_size // base.patch_size
    grid = TokenGrid((side, side))
    heads = base.shape.dimensions()["num_heads"]
    width = base.shape.dimensions()["embed_dim"] // heads
    small = TokenGrid((2, 2))  # what an encoding adds is the same on every grid
    return kernels_for(create_encoding(name, heads, width, grid)(small, small))


def _compared(
    setting: str, jobs: Sequence[tuple[str, Job]], effort: Effort, until: float, say: Say
) -> Iterator[Result]:
    """Time the candidates in turns: all that can be made ready in half the time."""
    start = time.monotonic()
    ready: dict[str, Ready] = {}
    for number, (name, job) in enumerate(jobs):
        if number > 1 and time.monotonic() > start + (until - start) / 2:
            say(f"no time left for: {', '.join(left for left, _ in jobs[number:])}")
            break
        made = _made_ready(job)
        if isinstance(made, Ready):
            ready[name] = made
        else:
            say(f"{name} is left out: {made}")
    if "none" not in ready:
        return
    timings = interleave(
        {name: made.work for name, made in ready.items()},
        seconds=max(0.0, min(effort.seconds, until - time.monotonic())),
        rounds=effort.rounds,
        least=2,
        clock=effort.clock,
        device=torch.device(jobs[0][1].device),
    )
    none = ready["none"].peak
    for name, made in ready.items():
        ratio = timings[name].over(timings["none"])
        yield Result(setting, name, "none", timings[name].typical, ratio, peak=made.peak, reference_peak=none)


def _made_ready(job: Job) -> Ready | str:
    """The candidate after two calls, or why there is none: it is too large, or a kernel refuses."""
    on_gpu = job.device.startswith("cuda")
    others = torch.cuda.memory_allocated() if on_gpu else 0
    try:
        work, _ = callable_of(job)
        work()
        if not on_gpu:
            return Ready(work, None)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before, start = torch.cuda.memory_allocated(), time.perf_counter()
        work()
        torch.cuda.synchronize()
        taken = time.perf_counter() - start
        return Ready(work, Peak(torch.cuda.max_memory_allocated() - others, before - others, taken, taken))
    except Exception as error:  # one candidate must not end the run of all
        if on_gpu:
            torch.cuda.empty_cache()
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
