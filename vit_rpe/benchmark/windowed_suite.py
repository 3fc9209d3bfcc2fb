"""What position costs in windowed models: ``vit-rpe benchmark --suite windowed``.

timm's Swin and Segment Anything beside the same objects with their position in our hands (``rpe="keep"``), as it learns
and frozen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from vit_rpe.benchmark.candidates.jobs import Job
from vit_rpe.benchmark.measuring.compare import Effort, Result, compare_memory, compare_times

SWIN, ENCODER = "swin_tiny_patch4_window7_224", "samvit_base_patch16"
TARGETS = {"keep": 0.95, "keep, frozen": 0.9}
ENCODER_TIME, ENCODER_MEMORY = 0.75, 0.5


def windowed_suite(effort: Effort, *, quick: bool, threads: int | None, say: Callable[[str], None]) -> Iterator[Result]:
    """Every row, as it is measured.

    Args:
        effort: a comparison may take twice its ``seconds``.
        quick: Segment Anything at 256 pixels and batch 1 only, to see that all works.
        say: told what is being measured.
    """
    for training in (False, True):
        for batch in (1,) if quick else (1, 8):
            setting = f"Swin-T, 224 px, {'training step' if training else 'inference'}, batch {batch}"
            say(setting)
            jobs = {name: Job(name, what=SWIN, batch=batch, training=training) for name in ("timm", "keep")}
            if not training:
                jobs["keep, frozen"] = jobs["keep"]._replace(frozen=True)
            rows = compare_times(jobs, dict.fromkeys(list(jobs)[1:], "timm"), setting, _twice(effort))
            yield from (row._replace(target=1.0 if training else TARGETS[row.name]) for row in rows[1:])
    side = 256 if quick else 1024
    setting = f"SAM-B encoder, {side} px, inference, batch 1"
    say(setting)
    jobs = {name: Job(name, what=ENCODER, img_size=side) for name in ("timm", "keep")}
    rows = compare_times(jobs, {"keep": "timm"}, setting, _twice(effort)._replace(least=3))
    yield from (row._replace(target=ENCODER_TIME) for row in rows[1:])
    say(f"{setting}, memory")
    rows = compare_memory(jobs, "timm", f"{setting}, peak memory", threads=threads, clock=effort.clock)
    yield from (row._replace(target=ENCODER_MEMORY) for row in rows[1:])


def _twice(effort: Effort) -> Effort:
    return effort._replace(seconds=2 * effort.seconds)
