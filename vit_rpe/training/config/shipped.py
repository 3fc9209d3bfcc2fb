"""The configs that come with the package, found by name."""

from __future__ import annotations

from pathlib import Path

from vit_rpe.checks import unknown_name

__all__ = ["DEFAULT_CONFIG", "config_folder", "default_config", "find_config", "list_configs"]

DEFAULT_CONFIG = "digits/vit_nano_bias"
_OF_SOURCES = {"text": "text/char_lm_bias", "text_classes": "text/passages_bias"}
_OF_FILES = "folder/vit_tiny_bias"


def config_folder() -> Path:
    """Where the shipped configs lie: inside the installed package, or beside it in a source checkout."""
    package = Path(__file__).parents[2]
    inside = package / "configs"
    return inside if inside.is_dir() else package.parent / "configs"


def list_configs(*, studies: bool = False) -> list[str]:
    """Names of the shipped training configs, for example ``digits/vit_nano_bias``, or of the studies."""
    folder = config_folder()
    names = (path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.yaml"))
    return sorted(name for name in names if name.startswith("study/") == studies)


def default_config(data_name: str) -> str:
    """The shipped config for data that are given by name only: a plain transformer for that source, else that for
    one's own files."""
    own = [name for name in list_configs() if name.startswith(f"{data_name}/vit_") and name.endswith("_bias")]
    small = sorted(own, key=lambda name: (("nano" not in name), ("tiny" not in name), name))
    return _OF_SOURCES.get(data_name) or next(iter(small), _OF_FILES)


def find_config(name: str, *, study: bool = False) -> Path:
    """The file of a config (or study) given by path or by shipped name.

    Raises:
        ValueError: there is no such file and none of that name is shipped.
    """
    path = Path(name)
    if path.is_file():
        return path
    shipped = name.removeprefix("configs/").removesuffix(".yaml")
    known = list_configs(studies=study)
    if shipped in known:
        return config_folder() / f"{shipped}.yaml"
    kind = "study" if study else "config"
    raise unknown_name(f"{kind} (no such file, no shipped {kind} of that name)", shipped, known)
