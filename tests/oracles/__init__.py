"""One oracle per encoding, found by file name: ``tests/oracles/<encoding name>.py``. Such a file holds

``answer(encoding, pair) -> Answer``
    the paper's formula for one pair, in plain Python (see ``_pair.py``);
``CHANGES: dict[str, list[dict | tuple[dict, dict]]]``
    for every option of the encoding, the option values to test. Each dict is a set of options; it is compared with
    the same set without that option (or with the first of a pair of dicts) and must change the output or the number
    of parameters. All of them also run through the oracle;
``draw(encoding, generator)``, only where standard-normal parameters would be outside the useful range
    sets large, distinct parameters in place;
``refuses(options, native, q_grid, k_grid) -> bool``, only where it is needed
    True where the encoding must raise ValueError, in its constructor or forward.
``swap_axes(state) -> state``, where the default, ``_0`` and ``_1`` change places, is not it
    the parameters for a transposed 2-D grid; ``AXES_HAVE_CHANNELS = r``: q and k channels belong to axes
    too, first to the one, then to the other, r times over;
    ``AXES_ALIKE = False``: height and width are not alike by definition;
``OFFSET_IS_ALL = False``, ``NATIVE_SIZE_COUNTS = True``
    more than the offset decides; the native size enters the formula.

A toy encoding in a test may put itself into ``ORACLES`` by hand.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType, SimpleNamespace

from tests.oracles._loops import attention_by_loops
from tests.oracles._pair import Answer, Pair, clamp

ORACLES: dict[str, ModuleType | SimpleNamespace] = {
    found.name: import_module(f"{__name__}.{found.name}")
    for found in iter_modules(__path__)
    if not found.name.startswith("_")
}

__all__ = ["ORACLES", "Answer", "Pair", "attention_by_loops", "clamp"]
