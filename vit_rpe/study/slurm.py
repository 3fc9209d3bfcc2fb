"""Send the cells of a study to a Slurm cluster through submitit."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from vit_rpe.study.plan import Cell, StudyConfig
from vit_rpe.study.recipe import Recipes
from vit_rpe.study.task import write_task
from vit_rpe.training.config.yaml_text import load_yaml


def run_on_slurm(
    study: StudyConfig, cells: Sequence[Cell], output: Path, recipes: Recipes, *, parameters: str
) -> list[str]:
    """Submit cells as a job array and wait for it; those that read the others' weights follow as a second one.

    Args:
        parameters: YAML mapping for submitit's ``update_parameters``, for example ``{timeout_min: 60}``.

    Returns:
        Names of the cells that failed.

    Raises:
        ValueError: submitit is not installed, or ``parameters`` is no mapping.
    """
    try:
        import submitit
    except ImportError as error:
        raise ValueError("--launcher slurm needs the package submitit: pip install submitit") from error
    options = load_yaml(parameters)
    if not isinstance(options, dict):
        raise ValueError(f"--slurm must be a YAML mapping, got {parameters!r}")
    executor = submitit.AutoExecutor(folder=output / "slurm")
    executor.update_parameters(cpus_per_task=study.threads, **options)
    failed: list[str] = []
    for reads in (False, True):
        wave = [cell for cell in cells if (cell.trained_as is not None) == reads]
        commands = [write_task(study, cell, output.absolute(), recipes) for cell in wave]
        jobs = executor.map_array(subprocess.call, commands) if wave else []
        ended = zip(wave, jobs, strict=True)
        failed += [cell.name for cell, job in ended if job.exception() is not None or job.result() != 0]
    return failed
