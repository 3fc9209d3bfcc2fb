"""Recorded maps against the softmax inside of each family's own unfused attention, on small random models."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["Maps", "family_table", "maps_of", "print_maps"]


@dataclass(frozen=True)
class Maps:
    """What became of one small model.

    Attributes:
        maps: largest difference of a weight to the family's own.
        logits: largest difference of the output with recording on to that with it off.
        files: where its attention layers are described.
        layers: how many were compared.
    """

    maps: float
    logits: float
    files: frozenset[str]
    layers: int


def maps_of(package: str, case: str) -> Maps:
    """Record a small model, and watch the softmax of the same one unfused.

    Raises:
        ImportError: the package is not installed.
    """
    import torch

    from vit_rpe.models.families import family_of
    from vit_rpe.models.families.samples import sample_of
    from vit_rpe.models.families.samples.of_timm import in_order
    from vit_rpe.viz import record

    model, x, options = sample_of(package, case)
    plain, _, _ = sample_of(package, case, unfused="eager")
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # layers without a map
        before = _output(model(x, **options))
        with record(model) as seen:
            after = _output(model(x, **options))
        with _watched(plain, seen.names) as own:
            plain(x, **options)
        largest = 0.0
        for layer, name in enumerate(seen.names):
            found = seen.attention(layer)
            expected = torch.cat(own[name], dim=1) if len(own[name]) > 1 else own[name][0]
            if case == "hiera":
                expected = in_order(plain, layer, expected)
            largest = max(largest, float((found - expected.reshape(found.shape)).abs().max()))
    files = {f"{type(family_of(layer)).__module__.replace('.', '/')}.py" for layer, _ in seen.calls.values()}
    return Maps(largest, float((before - after).abs().max()), frozenset(files), len(seen))


def _output(given: Any) -> Tensor:
    logits = given.get("logits") if hasattr(given, "get") else given
    found: Tensor = given[0] if logits is None else logits
    return found


@contextmanager
def _watched(model: nn.Module, names: list[str]) -> Iterator[dict[str, list[Tensor]]]:
    """What every softmax inside of these layers gives; a layer that takes one head after the other has several, each
    (B W, 1, N, N)."""
    import torch
    from torch import nn

    found: dict[str, list[Tensor]] = {name: [] for name in names}
    running: list[str] = []
    handles = []
    for name in names:
        layer = model.get_submodule(name)
        handles.append(layer.register_forward_pre_hook(lambda *_, name=name: running.append(name)))
        handles.append(layer.register_forward_hook(lambda *_: running.pop() and None))
    for module in model.modules():
        if isinstance(module, nn.MultiheadAttention):  # else its kernels never have the weights
            handles.append(
                module.register_forward_pre_hook(
                    lambda _, args, kwargs: (args, {**kwargs, "need_weights": True, "average_attn_weights": False}),
                    with_kwargs=True,
                )
            )
    plain: dict[Any, Callable[..., Tensor]] = {torch.Tensor: torch.Tensor.softmax, torch: torch.softmax}

    def keeping(softmax: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def kept(*args: Any, **kwargs: Any) -> Tensor:
            weights = softmax(*args, **kwargs)
            if running:
                one_head = weights.ndim == 3 and bool(found[running[-1]])
                found[running[-1]].append(weights[:, None] if one_head else weights)
                if one_head and found[running[-1]][0].ndim == 3:
                    found[running[-1]][0] = found[running[-1]][0][:, None]
            return weights

        return kept

    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        for place, softmax in plain.items():
            place.softmax = keeping(softmax)
        yield found
    finally:
        for place, softmax in plain.items():
            place.softmax = softmax
        torch.backends.mha.set_fastpath_enabled(fast)
        for handle in handles:
            handle.remove()


def print_maps(only: list[str] | None) -> None:
    """Print one row a family, in Markdown.

    Args:
        only: packages or families; None for all.

    Raises:
        ValueError: a name that is neither.
    """
    from vit_rpe.checks import check_choice
    from vit_rpe.models.families.samples import ROWS, architecture_of

    known = list(dict.fromkeys([*(row.package for row in ROWS), *(row.family for row in ROWS)]))
    for name in only or []:
        check_choice("family", name, known)
    print("| package | family | architectures | layers | maps | logits | described in |")
    print("|---|---|---|---|---|---|---|")
    for row in ROWS:
        if only is not None and row.package not in only and row.family not in only:
            continue
        start = f"| {row.package} | {row.family} |"
        try:
            found = [maps_of(row.package, case) for case in row.cases]
        except ImportError as error:
            print(f"{start} | | | | not installed here: {error} |", flush=True)
            continue
        names = dict.fromkeys(f"`{architecture_of(row.package, case)}`" for case in row.cases)
        files = sorted({file.rpartition("/")[2] for each in found for file in each.files})
        print(
            f"{start} {', '.join(names)} | {sum(each.layers for each in found)} "
            f"| {max(each.maps for each in found):.1e} | {max(each.logits for each in found):.1e} "
            f"| {', '.join(f'`{file}`' for file in files)} |",
            flush=True,
        )


def family_table() -> str:
    """Every described attention class, in Markdown: a row a file, as ``docs/pictures.md`` has it."""
    from vit_rpe.models.families import described

    rows: dict[str, tuple[str, list[str]]] = {}
    for family in described():
        module = inspect.getmodule(type(family))
        assert module is not None
        first = (module.__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")
        classes = rows.setdefault(module.__name__.rpartition(".")[2], (first.rstrip("."), []))[1]
        for kind in family.layers:
            name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__name__}"
            package, *_, module_name, kind_name = name.split(".")
            classes.append(f"{package} `{module_name}.{kind_name}`")
    lines = ["| described in | what | attention classes |", "|---|---|---|"]
    lines += [f"| `{file}.py` | {first} | {', '.join(classes)} |" for file, (first, classes) in sorted(rows.items())]
    return "\n".join(lines)
