"""Old names of modules work for one release, and say the new one."""

from __future__ import annotations

import importlib
import sys

import pytest

import vit_rpe  # noqa: F401  (makes the old names importable)
from vit_rpe._moved import MOVED


@pytest.mark.parametrize("old", MOVED)
def test_an_old_module_is_the_new_one_with_a_warning(old):
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=MOVED[old]):
        module = importlib.import_module(old)
    assert module is importlib.import_module(MOVED[old])
    assert module.__name__ == MOVED[old] == module.__spec__.name
