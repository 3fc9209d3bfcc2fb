"""Images to batches: sources, one image treatment, augmentation with keyed draws, loaders that can resume
anywhere.
"""

from .build import build_data
from .bundle import DataBundle
from .config import DataConfig
from .errors import BadImageError, DataNotFoundError
from .loader import EvalLoader, TrainLoader, eval_loader, train_loader
from .mixing import BatchMixer, batch_mixer
from .preprocessing import Preprocessing

__all__ = [
    "BadImageError",
    "BatchMixer",
    "DataBundle",
    "DataConfig",
    "DataNotFoundError",
    "EvalLoader",
    "Preprocessing",
    "TrainLoader",
    "batch_mixer",
    "build_data",
    "eval_loader",
    "train_loader",
]
