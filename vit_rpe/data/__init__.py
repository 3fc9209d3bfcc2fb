"""Images to batches: sources, one image treatment, augmentation with keyed draws, loaders that can resume
anywhere.
"""

from vit_rpe.data.build import build_data, rebuild_data
from vit_rpe.data.bundle import DataBundle
from vit_rpe.data.config import DataConfig
from vit_rpe.data.errors import BadImageError, DataNotFoundError
from vit_rpe.data.images.mixing import BatchMixer, batch_mixer
from vit_rpe.data.images.preprocessing import Preprocessing
from vit_rpe.data.loader import EvalLoader, TrainLoader, eval_loader, train_loader
from vit_rpe.data.text.treatment import TextTreatment, read_treatment

__all__ = [
    "BadImageError",
    "BatchMixer",
    "DataBundle",
    "DataConfig",
    "DataNotFoundError",
    "EvalLoader",
    "Preprocessing",
    "TextTreatment",
    "TrainLoader",
    "batch_mixer",
    "build_data",
    "eval_loader",
    "read_treatment",
    "rebuild_data",
    "train_loader",
]
