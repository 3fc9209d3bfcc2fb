"""Old names of modules, and of what left a module, for one release: using one warns and gives what replaced it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

from vit_rpe.checks import warn_renamed

MOVED = {
    "vit_rpe.absolute": "vit_rpe.layers.absolute",
    "vit_rpe.attention.axes": "vit_rpe.attention.per_axis",
    "vit_rpe.attention.definition": "vit_rpe.attention.reference",
    "vit_rpe.attention.fold": "vit_rpe.attention.kernels.fold",
    "vit_rpe.attention.sdpa": "vit_rpe.attention.kernels.sdpa",
    "vit_rpe.attention.windows": "vit_rpe.attention.kernels.windows",
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
    "vit_rpe.data.augment": "vit_rpe.data.images.augment",
    "vit_rpe.data.bad_images": "vit_rpe.data.account",
    "vit_rpe.data.choices": "vit_rpe.checks",
    "vit_rpe.data.mixing": "vit_rpe.data.images.mixing",
    "vit_rpe.data.pixels": "vit_rpe.data.images.pixels",
    "vit_rpe.data.preprocessing": "vit_rpe.data.images.preprocessing",
    "vit_rpe.data.samples": "vit_rpe.data.batch",
    "vit_rpe.data.split": "vit_rpe.data.images.split",
    "vit_rpe.data.text_corpus": "vit_rpe.data.text.corpus",
    "vit_rpe.data.text_windows": "vit_rpe.data.text.windows",
    "vit_rpe.data.warp": "vit_rpe.data.images.warp",
    "vit_rpe.encodings.bias_axial": "vit_rpe.encodings.bias",
    "vit_rpe.geometry": "vit_rpe.position.geometry",
    "vit_rpe.layer_options": "vit_rpe.layers.options",
    "vit_rpe.masks": "vit_rpe.position.masks",
    "vit_rpe.models.ablate": "vit_rpe.models.exchange.ablate",
    "vit_rpe.models.convert": "vit_rpe.models.exchange",
    "vit_rpe.models.convert.complete": "vit_rpe.models.exchange.complete",
    "vit_rpe.models.convert.describe": "vit_rpe.models.exchange.describe",
    "vit_rpe.models.convert.from_timm": "vit_rpe.models.exchange.from_timm",
    "vit_rpe.models.convert.load": "vit_rpe.models.exchange.load",
    "vit_rpe.models.convert.parts": "vit_rpe.models.exchange.parts",
    "vit_rpe.models.convert.placing": "vit_rpe.models.exchange.placing",
    "vit_rpe.models.convert.positions": "vit_rpe.models.exchange.positions",
    "vit_rpe.models.convert.public": "vit_rpe.models.exchange.public",
    "vit_rpe.models.convert.retrofit": "vit_rpe.models.exchange.in_place.retrofit",
    "vit_rpe.models.convert.start": "vit_rpe.models.exchange.placing",
    "vit_rpe.models.convert.weights": "vit_rpe.models.exchange.weights",
    "vit_rpe.models.vit": "vit_rpe.models.vision.vit",
    "vit_rpe.resampling": "vit_rpe.position.resampling",
    "vit_rpe.scalar_bias": "vit_rpe.layers.scalar_bias",
    "vit_rpe.sections": "vit_rpe.position.slicing",
    "vit_rpe.sharing": "vit_rpe.position.geometry_cache",
    "vit_rpe.suggest": "vit_rpe.checks",
    "vit_rpe.terms": "vit_rpe.position.terms",
    "vit_rpe.toeplitz": "vit_rpe.position.offset_tables",
    "vit_rpe.training.check": "vit_rpe.training.config.check",
    "vit_rpe.training.display": "vit_rpe.training.reporting.display",
    "vit_rpe.training.evaluation": "vit_rpe.training.metrics",
    "vit_rpe.training.files": "vit_rpe.training.checkpoint.files",
    "vit_rpe.training.generalise": "vit_rpe.evaluation.resolution_eval",
    "vit_rpe.training.lengths": "vit_rpe.evaluation.length_eval",
    "vit_rpe.training.parse": "vit_rpe.training.config.parse",
    "vit_rpe.training.pictures": "vit_rpe.training.reporting.pictures",
    "vit_rpe.training.resume": "vit_rpe.training.checkpoint.resume",
    "vit_rpe.training.run_folder": "vit_rpe.training.checkpoint.run_folder",
    "vit_rpe.training.save": "vit_rpe.training.checkpoint.save",
    "vit_rpe.training.sharding": "vit_rpe.training.checkpoint.sharding",
    "vit_rpe.training.shipped": "vit_rpe.training.config.shipped",
    "vit_rpe.training.state": "vit_rpe.training.checkpoint.state",
    "vit_rpe.training.text_samples": "vit_rpe.training.reporting.text_samples",
    "vit_rpe.training.trackers": "vit_rpe.training.reporting.trackers",
    "vit_rpe.training.yaml_text": "vit_rpe.training.config.yaml_text",
    "vit_rpe.viz.explorer.explorer": "vit_rpe.viz.explorer.write",
    "vit_rpe.viz.gradient": "vit_rpe.viz.recording.gradient",
    "vit_rpe.viz.maps": "vit_rpe.viz.recording.maps",
    "vit_rpe.viz.packing": "vit_rpe.viz.explorer.packing",
    "vit_rpe.viz.payload": "vit_rpe.viz.explorer.payload",
    "vit_rpe.viz.plot_extrapolation": "vit_rpe.viz.plots.extrapolation",
    "vit_rpe.viz.plot_overlay": "vit_rpe.viz.plots.overlay",
    "vit_rpe.viz.plot_rotation": "vit_rpe.viz.plots.rotation",
    "vit_rpe.viz.plot_summary": "vit_rpe.viz.plots.summary",
    "vit_rpe.viz.plots.contact_sheet": "vit_rpe.viz.contact_sheet",
    "vit_rpe.viz.query": "vit_rpe.viz.recording.query",
    "vit_rpe.viz.rotation": "vit_rpe.viz.recording.rotation",
}

LEFT = {  # module: name in it that lives elsewhere now, and where
    "vit_rpe.data.batch": {"ImageSamples": "vit_rpe.data.images.samples"},
    "vit_rpe.data.build": {"build_preprocessing": "vit_rpe.data.images.build"},
    "vit_rpe.data.config": {
        "AUGMENT_PRESETS": "vit_rpe.data.images.config",
        "INTERPOLATIONS": "vit_rpe.data.images.config",
    },
    "vit_rpe.encodings.combined": {
        "create_position": "vit_rpe.encodings",
        "encodings_of": "vit_rpe.encodings",
        "is_per_pair": "vit_rpe.encodings",
        "resized_position": "vit_rpe.encodings",
    },
}


class _Finder(MetaPathFinder, Loader):
    """Finds a module under its old name, where nothing else has that name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in MOVED:
            return ModuleSpec(fullname, self)
        spec = PathFinder.find_spec(fullname, path) if fullname in LEFT else None
        if spec is not None and spec.origin is not None:
            spec.loader = _Left(fullname, spec.origin)
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        new = MOVED[spec.name]
        warn_renamed(spec.name, new)
        return importlib.import_module(new)

    def exec_module(self, module: ModuleType) -> None:
        """The module has run under its new name, and keeps what it knows of itself."""
        module.__spec__ = importlib.util.spec_from_file_location(module.__name__, module.__file__)


class _Left(SourceFileLoader):
    """Loads a module that some names have left: asked for one of them, it warns and gives what has that name now."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)

        def old_name(name: str) -> Any:
            home = LEFT[module.__name__].get(name)
            if home is None:
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            warn_renamed(f"{module.__name__}.{name}", f"{home}.{name}")
            return getattr(importlib.import_module(home), name)

        module.__getattr__ = old_name  # type: ignore[method-assign]


def install() -> None:
    """Make the old names importable."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
