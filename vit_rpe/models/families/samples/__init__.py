"""A small random model for every family: what tests look at and ``vit-rpe parity --maps`` measures."""

from vit_rpe.models.families.samples.rows import ROWS, Row, architecture_of, sample_of

__all__ = ["ROWS", "Row", "architecture_of", "sample_of"]
