"""What the encodings of recent years cost: ``vit-rpe benchmark --suite recent``.

Each beside the one whose cost it should have, ViT-S/16 at 224 px. A frozen model shows what is left when positions are
constants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from vit_rpe.benchmark.candidates.jobs import Job
from vit_rpe.benchmark.measuring.compare import Effort, Result, compare_times

REFERENCES = ("none", "rope", "bias_axial")
ROWS: dict[str, tuple[Any, str, float | None]] = {
    "rope, spiral": ({"name": "rope", "layout": "spiral"}, "rope", 1.03),
    "rope, golden": ({"name": "rope", "layout": "golden"}, "rope", 1.03),
    "rope, simplex": ({"name": "rope", "layout": "simplex"}, "rope", 1.03),
    "gaussian": ("gaussian", "bias_axial", 1.03),
    "fourier": ("fourier", "bias_axial", 1.03),
    "pape, 4 parabolas": ({"name": "pape", "parabolas": 4}, "none", 1.25),
    "pape": ("pape", "none", None),
    "pape_ri": ("pape_ri", "none", None),
    "pope": ("pope", "none", None),
    "liere": ("liere", "none", None),
}
"""Spec, what it is compared with, and the largest ratio wanted in inference (None: none is)."""


def recent_suite(effort: Effort, *, quick: bool, threads: int | None, say: Callable[[str], None]) -> Iterator[Result]:
    """Every row, as it is measured.

    Args:
        effort: a comparison may take three times its ``seconds``.
        quick: two layers and batch 1 only, to see that all works.
        threads: not needed, for no process is started.
        say: told what is being measured.
    """
    longer = effort._replace(seconds=effort.seconds * 3)
    for training in (False, True):
        for batch in (1,) if quick else (1, 8):
            setting = f"224 px, {'training step' if training else 'inference'}, batch {batch}"
            say(setting)
            specs = {name: name for name in REFERENCES} | {name: spec for name, (spec, _, _) in ROWS.items()}
            jobs = {
                name: Job(spec, depth=2 if quick else None, batch=batch, training=training)
                for name, spec in specs.items()
            }
            beside = {name: reference for name, (_, reference, _) in ROWS.items()}
            for row in compare_times(jobs, beside, setting, longer):
                if row.name in ROWS:
                    yield row if training else row._replace(target=ROWS[row.name][2])
