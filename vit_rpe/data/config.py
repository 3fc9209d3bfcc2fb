"""From a source's name to its options: which kind of data it gives, and what it does not take."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from vit_rpe.checks import check_choice, closest
from vit_rpe.data.images.config import ImageData
from vit_rpe.data.options import OF_WORKERS, DataOptions
from vit_rpe.data.sources import SOURCES
from vit_rpe.data.text.config import TextData

__all__ = ["DATA_NAMES", "DataConfig", "check_options", "other_data", "read_config"]

DATA_NAMES = tuple(SOURCES)
_CONFIGS: tuple[type[ImageData], type[TextData]] = (ImageData, TextData)
_LOADING = {field.name for field in fields(DataOptions)} - {"name", "path", "val_path", "fraction"}
_DEFAULTS = {field.name: field.default for config in _CONFIGS for field in fields(config)}


def DataConfig(name: str = "digits", **options: Any) -> ImageData | TextData:
    """The options of the source ``name``: ``ImageData`` or ``TextData``, by what the source gives.

    Raises:
        ValueError: an unknown source or option, a value out of range, or an option of other sources.
    """
    check_choice("data.name", name, SOURCES)
    config = SOURCES[name].config
    own = {field.name for field in fields(config)}
    for option, given in options.items():
        if option not in _DEFAULTS:
            raise ValueError(f"unknown option data.{option}{closest(option, _DEFAULTS)}")
        if option not in own:
            raise _not_taken(name, option, given)
    made = config(name=name, **options)
    check_options(made)
    return made


def read_config(values: dict[str, Any]) -> ImageData | TextData:
    """``DataConfig`` from a file or a command line, which may hold the options of all sources at their defaults.

    Raises:
        ValueError: as ``DataConfig``.
    """
    name = values.get("name", "digits")
    check_choice("data.name", name, SOURCES)
    own = {field.name for field in fields(SOURCES[name].config)}
    kept = {key: given for key, given in values.items() if key in own or not _is_default(key, given)}
    return DataConfig(**kept)


def other_data(values: dict[str, Any], **changes: Any) -> ImageData | TextData:
    """The options of a trained model's data (``values``), changed where ``changes`` are not None.

    With another ``path``, ``val_path`` goes with the old one; with another ``name``, all that was said of the source;
    without loader processes, what was said of these.

    Raises:
        ValueError: as ``DataConfig``.
    """
    given = {key: value for key, value in changes.items() if value is not None}
    kept = dict(values)
    if given.get("name", kept.get("name", "digits")) != kept.get("name", "digits"):
        kept = {key: kept[key] for key in _LOADING if key in kept}
    elif "path" in given:
        kept.pop("val_path", None)
    if not {**kept, **given}.get("num_workers"):
        kept = {key: value for key, value in kept.items() if key not in OF_WORKERS}
    return read_config({**kept, **given})


def check_options(config: DataOptions) -> None:
    """Refuse what the source of ``config`` does not take, unless it is left at its default.

    Raises:
        ValueError: an option of other sources; the message names them.
    """
    check_choice("data.name", config.name, SOURCES)
    source = SOURCES[config.name]
    if not isinstance(config, source.config):
        raise ValueError(f"data.name={config.name} gives {source.config.kind}, these are options of {config.kind}")
    declared = {option for other in SOURCES.values() for option in other.options}
    for field in fields(config):
        given = getattr(config, field.name)
        if field.name in declared - source.options and given != field.default:
            raise _not_taken(config.name, field.name, given)


def _is_default(option: str, given: Any) -> bool:
    return option in _DEFAULTS and (tuple(given) if isinstance(given, list) else given) == _DEFAULTS[option]


def _not_taken(name: str, option: str, given: Any) -> ValueError:
    """The error for an option that other sources have."""
    takers = [
        other
        for other, source in SOURCES.items()
        if option in source.options
        or (option in {field.name for field in fields(source.config)} and not _declared_by_any(option))
    ]
    return ValueError(
        f"data.{option}={given!r} means nothing for data.name={name}: leave it out, or take a source that has it "
        f"({', '.join(takers)})"
    )


def _declared_by_any(option: str) -> bool:
    return any(option in source.options for source in SOURCES.values())
