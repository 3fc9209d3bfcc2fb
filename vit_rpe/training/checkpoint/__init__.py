"""What a run leaves behind and how it goes on from there."""

from vit_rpe.training.checkpoint.checkpoint import (
    CheckpointInfo,
    LoadedCheckpoint,
    find_checkpoint,
    load_checkpoint,
    read_info,
    read_weights,
    save_checkpoint,
)

__all__ = [
    "CheckpointInfo",
    "LoadedCheckpoint",
    "find_checkpoint",
    "load_checkpoint",
    "read_info",
    "read_weights",
    "save_checkpoint",
]
