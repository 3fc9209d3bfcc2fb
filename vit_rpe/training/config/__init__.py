"""The config of a run: its fields, its files, its options."""

from vit_rpe.training.config.schema import DistillConfig, ModelConfig, RunConfig, TrainConfig

__all__ = ["DistillConfig", "ModelConfig", "RunConfig", "TrainConfig"]
