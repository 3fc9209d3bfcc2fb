"""The configs that come with the package, found by name."""

from __future__ import annotations

from pathlib import Path

import vit_rpe
from vit_rpe.suggest import unknown_name

__all__ = ["DEFAULT_CONFIG", "config_folder", "find_config", "list_configs"]

DEFAULT_CONFIG = "digits/vit_nano_bias"


def config_folder() -> Path:
    """Where the shipped configs lie: inside the installed package, or beside it in a source checkout."""
    package = Path(vit_rpe.__file__).parent
    inside = package / "configs"
    return inside if inside.is_dir() else package.parent / "configs"


def list_configs() -> list[str]:
    """Names of the shipped training configs, for example ``digits/vit_nano_bias`` (studies have their own kind)."""
    folder = config_folder()
    names = (path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.yaml"))
    return sorted(name for name in names if not name.startswith("study/"))


def find_config(name: str) -> Path:
    """The file of a config given by path or by shipped name.

    Raises:
        ValueError: there is no such file and no shipped config of that name.
    """
    path = Path(name)
    if path.is_file():
        return path
    shipped = name.removeprefix("configs/").removesuffix(".yaml")
    if shipped in list_configs():
        return config_folder() / f"{shipped}.yaml"
    raise unknown_name("config (no such file, no shipped config of that name)", shipped, list_configs())
