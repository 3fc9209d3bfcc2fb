"""Reading weights from a file of somebody else's; no code of the file is run."""

from __future__ import annotations

import argparse
import pickle
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file


def read_file(file: str | Path) -> Mapping[str, Any]:
    """What a ``.safetensors`` or ``.pth`` file holds: tensors by name, or a training checkpoint around them.

    Raises:
        ValueError: no such file, none of these, or one with objects that only code of its authors could read.
    """
    file = Path(file).expanduser()
    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        with torch.serialization.safe_globals([argparse.Namespace]), warnings.catch_warnings():
            # the arguments of a training script are let in, and a remark on the file's age is no news
            warnings.simplefilter("ignore", UserWarning)
            content = torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, SafetensorError, RuntimeError, pickle.UnpicklingError, AttributeError) as error:
        foreign = re.search(r"GLOBAL ([\w.]+)", str(error))
        if foreign is None:
            raise ValueError(f"{file}: {str(error).splitlines()[0]}") from error
        raise ValueError(
            f"{file} holds a {foreign[1]} beside its weights, and code of a file is not run: where you trust it, save "
            "the weights alone, torch.save(torch.load(FILE, weights_only=False)['model'], NEW)"
        ) from error
    if not isinstance(content, Mapping):
        raise ValueError(f"{file} holds a {type(content).__name__}, not weights by name")
    return content
