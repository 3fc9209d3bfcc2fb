"""Old names of modules work for one release, and say the new one."""

from __future__ import annotations

import importlib
import sys

import pytest

import vit_rpe  # noqa: F401  (makes the old names importable)
from vit_rpe._moved import LEFT, MOVED


@pytest.mark.parametrize("old", MOVED)
def test_an_old_module_is_the_new_one_with_a_warning(old):
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=MOVED[old]):
        module = importlib.import_module(old)
    assert module is importlib.import_module(MOVED[old])
    assert module.__name__ == MOVED[old] == module.__spec__.name


@pytest.mark.parametrize("old", MOVED)
def test_an_old_module_hides_no_name_of_its_package(old):
    """Importing a module puts it into its package under its name."""
    package, _, name = old.rpartition(".")
    if package not in MOVED:
        assert name not in getattr(importlib.import_module(package), "__all__", ())


@pytest.mark.parametrize(
    ("package", "names"),
    [
        ("vit_rpe.training.checkpoint", ["load_checkpoint", "save_checkpoint", "read_info", "CheckpointInfo"]),
        ("vit_rpe.training.config", ["RunConfig", "ModelConfig", "TrainConfig", "DistillConfig"]),
        ("vit_rpe.viz.explorer", ["explorer_page"]),
    ],
)
def test_a_module_that_became_a_package_still_has_its_names(package, names):
    assert all(hasattr(importlib.import_module(package), name) for name in names)


@pytest.mark.parametrize(("module", "name"), [(module, name) for module, names in LEFT.items() for name in names])
def test_a_name_that_left_its_module_is_found_there_with_a_warning(module, name):
    home = importlib.import_module(LEFT[module][name])
    with pytest.warns(DeprecationWarning, match=f"is now {LEFT[module][name]}.{name}"):
        assert getattr(importlib.import_module(module), name) is getattr(home, name)
    with pytest.raises(AttributeError, match="no_such_name"):
        importlib.import_module(module).no_such_name  # noqa: B018
