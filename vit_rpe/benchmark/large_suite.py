"""What position costs on large grids, above all position that depends on content: ``vit-rpe benchmark --suite large``.

64 x 64 tokens in a ViT-S of two layers (layers are alike) and 128 x 128 tokens in one attention layer, beside the same
without position; one attention layer beside timm's of Segment Anything; and windows of keys (local attention) beside
attention to all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from vit_rpe.benchmark.candidates.jobs import Job
from vit_rpe.benchmark.measuring.compare import Effort, Result, compare_memory, compare_times

CONTENT = ("decomposed", "deberta", "shaw", "irpe", "transformer_xl", "fire", "lookhere")
LOCAL = ("none", "bias", "rope", "decomposed", "shaw", "lookhere")
RADIUS = 7
PIXELS, PIXELS_LAYER = 1024, 2048
TARGETS = {name: 1.25 if name == "decomposed" else 1.6 for name in CONTENT}
TRAINING = dict.fromkeys(CONTENT, 1.6)
LAYER_TARGETS = {"lookhere": 1.8, "fire": 1.8}
MEMORY, TRAINING_MEMORY, LOCAL_TIME = 1.2, 1.5, 0.25

Say = Callable[[str], None]


def large_suite(effort: Effort, *, quick: bool, threads: int | None, say: Say) -> Iterator[Result]:
    """Every row, as it is measured.

    Args:
        effort: a comparison may take three times its ``seconds``.
        quick: a quarter of the pixels along each side, to see that all works.
        threads: of the processes that measure memory.
        say: told what is being measured.
    """
    part = 4 if quick else 1
    longer = effort._replace(seconds=3 * effort.seconds, least=3)
    for training in (False, True):
        setting = f"{PIXELS} px, 2 layers, {'training step' if training else 'inference'}"
        say(setting)
        base = Job("none", img_size=PIXELS // part, depth=2, training=training)
        jobs = {name: base._replace(subject=name) for name in ("none", *CONTENT)}
        yield from _aimed(compare_times(jobs, _against(jobs), setting, longer), TRAINING if training else TARGETS)
        say(f"{setting}, memory")
        rows = compare_memory(jobs, "none", f"{setting}, peak memory", threads=threads, clock=effort.clock)
        yield from _aimed(rows, dict.fromkeys(CONTENT, TRAINING_MEMORY if training else MEMORY))
    setting = f"{PIXELS} px, one attention layer, beside Segment Anything's"
    say(setting)
    layer = Job("none", what="layer", img_size=PIXELS // part)
    beside = {"ours": layer._replace(subject="decomposed"), "timm": layer._replace(subject="timm")}
    yield from _aimed(compare_times(beside, {"ours": "timm"}, setting, longer)[:1], {"ours": 1.0})
    rows = compare_memory(beside, "timm", f"{setting}, peak memory", threads=threads, clock=effort.clock)
    yield from _aimed(rows[:1], {"ours": 1.0})
    layer = layer._replace(img_size=PIXELS_LAYER // part)
    jobs = {name: layer._replace(subject=name) for name in ("none", *CONTENT)}
    yield from _of_layer(jobs, f"{PIXELS_LAYER} px, one layer", LAYER_TARGETS, longer, threads, say)
    local = {f"{name}, window {RADIUS}": layer._replace(subject=name, window=RADIUS) for name in LOCAL}
    setting = f"{PIXELS_LAYER} px, one layer, local"
    yield from _of_layer({"none": layer, **local}, setting, dict.fromkeys(local, LOCAL_TIME), longer, threads, say)


def _of_layer(
    jobs: Mapping[str, Job], setting: str, targets: Mapping[str, float], effort: Effort, threads: int | None, say: Say
) -> Iterator[Result]:
    say(setting)
    few = effort._replace(seconds=0.0)
    yield from _aimed(compare_times(jobs, _against(jobs), setting, few), targets)
    say(f"{setting}, memory")
    rows = compare_memory(jobs, "none", f"{setting}, peak memory", threads=threads, clock=effort.clock)
    yield from _aimed(rows, dict.fromkeys(jobs, MEMORY))


def _against(jobs: Mapping[str, Job]) -> dict[str, str]:
    return {name: "none" for name in jobs if name != "none"}


def _aimed(rows: list[Result], targets: Mapping[str, float]) -> Iterator[Result]:
    yield from (row if row.name == "none" else row._replace(target=targets.get(row.name)) for row in rows)
