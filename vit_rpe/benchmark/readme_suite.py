"""The table of targets: ``vit-rpe benchmark --suite readme``.

Reference is the same ViT with ``rpe="none"``, or the peer with the same encoding. ViT-S/16 throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import timm

from vit_rpe.benchmark.candidates.jobs import Job, build
from vit_rpe.benchmark.candidates.peers import CLASSES, peers_of
from vit_rpe.benchmark.construction import measure_construction
from vit_rpe.benchmark.measuring.compare import Effort, Result, compare_memory, compare_times
from vit_rpe.benchmark.measuring.timing import interleave

FREE = ("bias", "bias_axial", "alibi", "t5", "cpb", "rope", "rope_mixed", "rope_normalized")
CONTEXTUAL = ("shaw", "decomposed", "irpe", "deberta", "transformer_xl")
TARGETS = {(False, True): 1.03, (False, False): 1.15, (True, True): 1.06, (True, False): 1.30}
"""By (training, free): largest time over ``none`` at 224 px."""

ADDITIVE = ("bias", "bias_axial", "t5", "cpb", "alibi", "kerple", "lookhere")
LARGE = 1024
HUGE = 2048

Say = Callable[[str], None]


def readme_suite(effort: Effort, *, quick: bool, threads: int | None, say: Say) -> Iterator[Result]:
    """Every row of the table, as it is measured.

    Args:
        effort: a comparison of all encodings at 224 px may take three times its ``seconds``, the others in proportion.
        quick: fewer layers and only batch 1, to see that all works; not for publication.
        say: told what is being measured.
    """
    for training in (False, True):
        for batch in (1,) if quick else (1, 8):
            yield from _small_images(training, batch, effort, quick, say)
    say("building the bias")
    yield from measure_construction(effort)
    say("1024 px, time")
    yield from _large_time(effort, quick)
    say("1024 px, memory")
    for training in (False, True):
        jobs = {name: _model(name, quick, img_size=LARGE, training=training) for name in ("none", "bias")}
        setting = f"1024 px, {_mode(training)}, peak memory"
        rows = compare_memory(jobs, "none", setting, threads=threads)
        yield from _aimed(rows, {"bias": 1.2 if training else 1.15})
    say("2048 px, one layer")
    yield from _huge(effort, quick, threads)
    say("model creation")
    yield from _creation()


def _small_images(training: bool, batch: int, effort: Effort, quick: bool, say: Say) -> Iterator[Result]:
    setting = f"224 px, {_mode(training)}, batch {batch}"
    say(setting)
    names = ("none", *FREE, *CONTEXTUAL)
    jobs = {name: _model(name, quick, batch=batch, training=training) for name in names}
    longer = effort._replace(
        seconds=effort.seconds * 3 * (1.5 if training else 1),
        least=effort.least if batch == 1 else 5,
    )
    rows = compare_times(jobs, dict.fromkeys(names[1:], "none"), setting, longer)
    targets = {name: TARGETS[training, name in FREE] for name in names[1:]}
    yield from _aimed(rows, targets)
    if not training and batch == 1:
        setting = f"224 px, inference, batch {batch}, frozen"
        say(setting)
        frozen = {name: job._replace(frozen=True) for name, job in jobs.items()}
        yield from _aimed(compare_times(frozen, dict.fromkeys(names[1:], "none"), setting, longer), targets)
    setting = f"224 px, {_mode(training)}, batch {batch}"
    say(f"{setting}, against timm")
    for peer in peers_of("timm"):
        pair = {
            f"ours for {peer}": _model("counterpart", quick, peer=peer, batch=batch, training=training),
            peer: _model(peer, quick, peer=peer, batch=batch, training=training),
        }
        share = longer._replace(seconds=longer.seconds / 5)
        rows = compare_times(pair, {f"ours for {peer}": peer}, setting, share)
        yield from _aimed(rows[:1], {f"ours for {peer}": 1.0})


def _large_time(effort: Effort, quick: bool) -> Iterator[Result]:
    for training, target in ((False, 1.4), (True, 2.0)):
        depth = 1 if quick else 3 if training else 12  # layers are alike: three tell what twelve would
        jobs = {name: Job(name, img_size=LARGE, depth=depth, training=training) for name in ("none", "bias")}
        setting = f"1024 px, {_mode(training)}, {depth} layer{'s' if depth > 1 else ''}"
        rows = compare_times(jobs, {"bias": "none"}, setting, effort._replace(seconds=effort.seconds * 1.5))
        yield from _aimed(rows, {"bias": target})


def _huge(effort: Effort, quick: bool, threads: int | None) -> Iterator[Result]:
    names = ("none", "bias", "alibi") if quick else ("none", *ADDITIVE)
    jobs = {name: Job(name, what="layer", img_size=HUGE) for name in names}
    rows = compare_memory(jobs, "none", "2048 px, one layer, peak memory", threads=threads, clock=effort.clock)
    yield from _aimed(rows, dict.fromkeys(names[1:], 1.3))
    few = effort._replace(seconds=0.0, least=1 if quick else 3)
    rows = compare_times(jobs, dict.fromkeys(names[1:], "none"), "2048 px, one layer", few)
    yield from _aimed(rows, dict.fromkeys(names[1:], 1.8))


def _creation() -> Iterator[Result]:
    """Building the model: ours against timm's of the same size, and against timm's with the same encoding.

    The plain ViT is the peer of the target: it draws its weights by the same initialisation as ours. timm builds its
    ``vit_relpos`` models with ``weight_init="skip"``, which leaves each layer as its constructor drew it.
    """
    plain, relpos = "timm vit_small_patch16_224", "timm relpos table"
    work: dict[str, Callable[[], object]] = {
        "ours": lambda: build(Job("bias")),
        plain: lambda: timm.create_model("vit_small_patch16_224", num_classes=CLASSES),
        relpos: lambda: build(Job(relpos, peer=relpos)),
    }
    taken = interleave(work, seconds=0.0, rounds=9, least=9)
    for peer, target in ((plain, 1.0), (relpos, None)):
        ratio = taken["ours"].over(taken[peer])
        yield Result("model creation", "bias", peer, taken["ours"].typical, ratio, target=target)


def _model(subject: str, quick: bool, **options: object) -> Job:
    return Job(subject, depth=2 if quick else None, **options)  # type: ignore[arg-type]


def _mode(training: bool) -> str:
    return "training step" if training else "inference"


def _aimed(rows: list[Result], targets: dict[str, float]) -> list[Result]:
    return [row._replace(target=targets.get(row.name)) for row in rows]
