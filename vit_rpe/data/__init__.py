"""Data to batches: sources of images and text, one treatment each, augmentation with keyed draws, loaders that can
resume anywhere.
"""

from vit_rpe.data.account import Account
from vit_rpe.data.batch import Batch, Samples
from vit_rpe.data.build import build_data, read_treatment, rebuild_data
from vit_rpe.data.bundle import DataBundle
from vit_rpe.data.config import DATA_NAMES, DataConfig, other_data, read_config
from vit_rpe.data.errors import BadImageError, DataNotFoundError
from vit_rpe.data.images.config import ImageData
from vit_rpe.data.images.mixing import BatchMixer, batch_mixer
from vit_rpe.data.images.preprocessing import Preprocessing, image_treatment
from vit_rpe.data.images.samples import image_samples
from vit_rpe.data.loader import EvalLoader, TrainLoader, eval_loader, train_loader
from vit_rpe.data.options import DataOptions
from vit_rpe.data.text.config import TextData
from vit_rpe.data.text.treatment import TextTreatment, text_treatment
from vit_rpe.data.treatment import Treatment

__all__ = [
    "DATA_NAMES",
    "Account",
    "BadImageError",
    "Batch",
    "BatchMixer",
    "DataBundle",
    "DataConfig",
    "DataNotFoundError",
    "DataOptions",
    "EvalLoader",
    "ImageData",
    "Preprocessing",
    "Samples",
    "TextData",
    "TextTreatment",
    "TrainLoader",
    "Treatment",
    "batch_mixer",
    "build_data",
    "eval_loader",
    "image_samples",
    "image_treatment",
    "other_data",
    "read_config",
    "read_treatment",
    "rebuild_data",
    "text_treatment",
    "train_loader",
]
