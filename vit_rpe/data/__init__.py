"""Images to batches: sources, one image treatment, augmentation with keyed draws, loaders that can resume
anywhere.
"""

from .build import build_data, rebuild_data
from .bundle import DataBundle
from .config import DataConfig
from .errors import BadImageError, DataNotFoundError
from .loader import EvalLoader, TrainLoader, eval_loader, train_loader
from .mixing import BatchMixer, batch_mixer
from .preprocessing import Preprocessing
from .text_treatment import TextTreatment, read_treatment

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
