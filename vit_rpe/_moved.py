"""Old names of modules, for one release: importing one warns and gives the module that replaced it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "vit_rpe.absolute": "vit_rpe.layers.absolute",
    "vit_rpe.benchmark.compare": "vit_rpe.benchmark.measuring.compare",
    "vit_rpe.benchmark.data": "vit_rpe.benchmark.input_side.throughput",
    "vit_rpe.benchmark.intervals": "vit_rpe.benchmark.measuring.intervals",
    "vit_rpe.benchmark.jobs": "vit_rpe.benchmark.candidates.jobs",
    "vit_rpe.benchmark.memory": "vit_rpe.benchmark.measuring.memory",
    "vit_rpe.benchmark.profile": "vit_rpe.benchmark.measuring.profile",
    "vit_rpe.benchmark.subjects": "vit_rpe.benchmark.candidates.peers",
    "vit_rpe.benchmark.timing": "vit_rpe.benchmark.measuring.timing",
    "vit_rpe.benchmark.torchvision_input": "vit_rpe.benchmark.input_side.torchvision_input",
    "vit_rpe.cache": "vit_rpe.layers.kv_cache",
    "vit_rpe.catalogue": "vit_rpe.models.catalogue",
    "vit_rpe.data.bad_images": "vit_rpe.data.account",
    "vit_rpe.data.split": "vit_rpe.data.images.split",
    "vit_rpe.geometry": "vit_rpe.position.geometry",
    "vit_rpe.masks": "vit_rpe.position.masks",
    "vit_rpe.models.convert": "vit_rpe.models.exchange",
    "vit_rpe.models.vit": "vit_rpe.models.vision.vit",
    "vit_rpe.resampling": "vit_rpe.position.resampling",
    "vit_rpe.scalar_bias": "vit_rpe.layers.scalar_bias",
    "vit_rpe.terms": "vit_rpe.position.terms",
    "vit_rpe.training.display": "vit_rpe.training.reporting.display",
    "vit_rpe.training.evaluation": "vit_rpe.training.metrics",
    "vit_rpe.training.generalise": "vit_rpe.evaluation.resolution_eval",
    "vit_rpe.training.lengths": "vit_rpe.evaluation.length_eval",
    "vit_rpe.training.pictures": "vit_rpe.training.reporting.pictures",
    "vit_rpe.training.text_samples": "vit_rpe.training.reporting.text_samples",
    "vit_rpe.training.trackers": "vit_rpe.training.reporting.trackers",
    "vit_rpe.viz.explorer.explorer": "vit_rpe.viz.explorer.write",
}


class _Finder(MetaPathFinder, Loader):
    """Finds a module under its old name, where nothing else has that name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in MOVED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        new = MOVED[spec.name]
        warnings.warn(
            f"{spec.name} is now {new}; the old name goes in the next release", DeprecationWarning, stacklevel=2
        )
        return importlib.import_module(new)

    def exec_module(self, module: ModuleType) -> None:
        """The module has run under its new name, and keeps what it knows of itself."""
        module.__spec__ = importlib.util.spec_from_file_location(module.__name__, module.__file__)


def install() -> None:
    """Make the old names importable."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
