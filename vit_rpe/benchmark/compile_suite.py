"""What compiled models cost on the CPU: ``vit-rpe benchmark --suite compile``.

ViT-S/16 at 224 px under ``torch.compile``, three layers: every encoding beside no position, and ours beside timm's
with the same encoding. Compiling is not timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from vit_rpe.benchmark.candidates.jobs import Job
from vit_rpe.benchmark.candidates.peers import peers_of
from vit_rpe.benchmark.measuring.compare import Effort, Result, compare_times
from vit_rpe.encodings import encoding_class, list_encodings

FEW = ("bias", "rope")
AT_ONCE = 6
"""Compiled models that take turns; each group has its own reference."""


def compile_suite(effort: Effort, *, quick: bool, threads: int | None, say: Callable[[str], None]) -> Iterator[Result]:
    """Every row, as it is measured.

    Args:
        effort: of one comparison; a model takes half a minute to compile besides.
        quick: one layer of a small model, inference, two encodings and one peer, to see that all works.
        threads: not needed, for no process is started.
        say: told what is being measured.
    """
    base = Job("none", depth=1 if quick else 3, compiled=True)
    if quick:
        base = base._replace(size="nano", img_size=64)
    planar = [name for name in list_encodings() if name != "none" and 2 in encoding_class(name).card.axes]
    names = FEW if quick else planar
    peers = list(peers_of("timm"))[: 1 if quick else None]
    for training in (False,) if quick else (False, True):
        job = base._replace(training=training)
        setting = f"{base.img_size} px, {'training step' if training else 'inference'}, batch 1, compiled"
        for peer in peers:
            say(f"{setting}, {peer}")
            mine = f"ours for {peer}"
            pair = {mine: job._replace(subject="counterpart", peer=peer), peer: job._replace(subject=peer, peer=peer)}
            yield compare_times(pair, {mine: peer}, setting, effort)[0]._replace(target=1.0)
        for first in range(0, len(names), AT_ONCE):
            group = names[first : first + AT_ONCE]
            say(f"{setting}, {', '.join(group)}")
            jobs = {name: job._replace(subject=name) for name in ("none", *group)}
            yield from compare_times(jobs, dict.fromkeys(group, "none"), setting, effort)[1:]
