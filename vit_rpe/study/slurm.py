"""Send the cells of a study to a Slurm cluster through submitit."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from vit_rpe.study.plan import Cell, StudyConfig
from vit_rpe.study.runner import cell_command, cell_folder, finished_row
from vit_rpe.training.config.yaml_text import load_yaml


def run_on_slurm(
    study: StudyConfig, study_file: str, cells: Sequence[Cell], output: Path, *, parameters: str
) -> list[str]:
    """Submit every cell without a result as one job array and wait for it.

    Args:
        parameters: YAML mapping for submitit's ``update_parameters``, for example ``{timeout_min: 60}``.

    Returns:
        Names of the cells that left no result.

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
    waiting = [cell for cell in cells if finished_row(output, cell) is None]
    executor = submitit.AutoExecutor(folder=output / "slurm")
    executor.update_parameters(cpus_per_task=study.threads, **options)
    commands = [cell_command(study_file, cell, cell_folder(output, cell).absolute()) for cell in waiting]
    for job in executor.map_array(subprocess.call, commands):
        job.wait()
    return [cell.name for cell in waiting if finished_row(output, cell) is None]
