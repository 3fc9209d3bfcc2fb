"""One's own encodings as modules: a Python file or module that the caller names, or an installed package's entry point.

A plug-in is any module that registers something when it is imported, as ``vit_rpe.encodings.register`` does. Packages
announce theirs in the entry point group ``vit_rpe.plugins``. Nothing else is ever imported: a config or checkpoint of a
run only says which plug-ins it was made with.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

GROUP = "vit_rpe.plugins"
_loaded: dict[str, ModuleType] = {}
_searched: list[bool] = []


def load_plugins(names: Iterable[str]) -> list[ModuleType]:
    """Import plug-ins by name: files such as ``my_encoding.py``, or modules that Python finds.

    A file is imported once, however often and however spelled it is named.

    Raises:
        ValueError: there is no such file or module, or importing it failed.
    """
    return [_load(name) for name in names]


def loaded_plugins() -> list[str]:
    """Names of the plug-ins imported so far, for a child process that is to know the same encodings."""
    return list(_loaded)


def load_installed() -> None:
    """Import the plug-ins of installed packages, once.

    Raises:
        ValueError: importing one failed; the message names its package.
    """
    if _searched:
        return
    _searched.append(True)
    for point in entry_points(group=GROUP):
        try:
            point.load()
        except Exception as error:
            package = point.dist.name if point.dist is not None else point.value
            raise ValueError(
                f"the plug-in {point.value} of the package {package} cannot be imported: {error}"
            ) from error
        _loaded[point.module] = sys.modules[point.module]


def missing_plugins(names: Iterable[str]) -> list[str]:
    """Those of the ``names``, as a run has noted them, that are not imported here."""
    load_installed()
    there = {_key(name) for name in _loaded} | {Path(name).name for name in _loaded if _is_file(name)}
    return [name for name in names if _key(name) not in there and Path(name).name not in there]


def how_to_pass(names: Iterable[str]) -> str:
    """Words for an error message: with which ``--plugin`` options the missing ones are imported."""
    words = " ".join(f"--plugin {name}" for name in names)
    return f"it was made with a plug-in, which is only imported if you name it: {words}"


def _load(name: str) -> ModuleType:
    key = _key(name)
    if key not in _loaded:
        try:
            _loaded[key] = _import_file(Path(name)) if _is_file(name) else importlib.import_module(name)
        except FileNotFoundError as error:
            raise ValueError(f"plugin: there is no file {name}") from error
        except Exception as error:
            raise ValueError(f"plugin: {name} cannot be imported: {type(error).__name__}: {error}") from error
    return _loaded[key]


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FileNotFoundError(path)
    spec = importlib.util.spec_from_file_location(f"vit_rpe_plugin_{path.stem}", path)
    assert spec is not None  # it ends in .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickles look there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[spec.name]
        raise
    return module


def _is_file(name: str) -> bool:
    return name.endswith(".py")


def _key(name: str) -> str:
    return str(Path(name).resolve()) if _is_file(name) else name
