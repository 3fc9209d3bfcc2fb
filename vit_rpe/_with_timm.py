"""Our models are registered with timm once both packages are imported, in either order.

Importing timm takes seconds, so ``import vit_rpe`` alone does not do it: ``vit-rpe --help`` answers at once. What is
imported later, timm or a package of ours that needs timm, registers them when it is complete.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

MODELS = "vit_rpe.models"


class _Watcher(MetaPathFinder, threading.local):
    """Sees timm and our packages being imported, nested in each other or not; ``depth`` counts within a thread."""

    depth = 0

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "timm" and fullname.rpartition(".")[0] != "vit_rpe":
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next((found for finder in others if (found := finder.find_spec(fullname, path, target))), None)
        if spec is None or spec.loader is None:
            return spec
        loader = spec.loader
        execute = loader.exec_module

        def execute_and_register(module: ModuleType) -> None:
            del loader.exec_module  # the loader is again what it was
            self.depth += 1
            try:
                execute(module)
            finally:
                self.depth -= 1
            if self.depth == 0 and "timm" in sys.modules and self in sys.meta_path:
                sys.meta_path.remove(self)
                importlib.import_module(MODELS)

        loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


def register_models() -> None:
    """Register now if timm is there, else as soon as it is."""
    if "timm" in sys.modules:
        importlib.import_module(MODELS)
    elif not any(isinstance(finder, _Watcher) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watcher())
