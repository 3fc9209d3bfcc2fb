"""Results as a Markdown table, a CSV file and a picture."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from math import nan
from pathlib import Path
from statistics import median

from vit_rpe.benchmark.measuring.compare import Result
from vit_rpe.benchmark.measuring.intervals import missed
from vit_rpe.viz.plots.canvas import plain_ticks
from vit_rpe.viz.plots.families import in_panels, looks
from vit_rpe.viz.plots.labels import label_lines

PASS, MISS = "✓", "✗"
NUMBERS = ("seconds", "ratio", "low", "high", "peak_mb", "memory_ratio", "call_mb", "call_ratio", "target", "met")
COLUMNS = ("setting", "name", "reference", *NUMBERS)


def verdict(result: Result) -> bool | None:
    """Whether the target is met: by time, or by memory where only that was measured; None without a target."""
    if result.target is None:
        return None
    if result.time is not None:
        return not missed(result.time, result.target)
    return None if result.memory is None else result.memory <= result.target


def markdown(results: Sequence[Result]) -> str:
    """The table as docs/performance.md shows it."""
    lines = [
        "| setting | what | against | time | ratio (median, 95 %) | peak memory | target | |",
        "|---|---|---|---:|---:|---:|---:|---|",
    ]
    for result in results:
        met = verdict(result)
        memory = "" if result.peak is None else _megabytes(result)
        lines.append(
            f"| {result.setting} | {result.name} | {result.reference} | {_duration(result.seconds)} "
            f"| {result.time or ''} | {memory} | {'' if result.target is None else f'<= {result.target:g}x'} "
            f"| {'' if met is None else PASS if met else MISS} |"
        )
    return "\n".join(lines)


def summary(results: Sequence[Result]) -> str:
    """A line for all results of one setting that share a target and a kind of reference."""
    groups: dict[tuple[str, str, float], list[Result]] = {}
    for result in results:
        if result.target is not None and verdict(result) is not None:
            against = result.reference.partition(" ")[0]
            groups.setdefault((result.setting, against, result.target), []).append(result)
    lines = ["| setting | what | against | target | ratio: median, worst | met | |", "|---|---|---|---|---|---|---|"]
    for (setting, against, target), group in groups.items():
        ratios = {r.name: r.memory if r.time is None else r.time.median for r in group}
        worst, ratio = max(ratios.items(), key=lambda item: item[1] or 0.0)
        names = ", ".join(name.removeprefix("ours for timm ") for name in ratios)
        spread = f"{median(v for v in ratios.values() if v is not None):.2f}x"
        spread += f", {ratio:.2f}x ({worst.removeprefix('ours for timm ')})" if len(group) > 1 else ""
        met = sum(bool(verdict(r)) for r in group)
        lines.append(
            f"| {setting} | {names} | {against} | <= {target:.3g}x | {spread} | {met} of {len(group)} "
            f"| {PASS if met == len(group) else MISS} |"
        )
    return "\n".join(lines)


def write_csv(results: Sequence[Result], path: Path) -> None:
    """One row a result, plain numbers."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for result in results:
            time = result.time
            writer.writerow(
                [
                    result.setting,
                    result.name,
                    result.reference,
                    f"{result.seconds:.6g}",
                    *(("", "", "") if time is None else (f"{value:.4f}" for value in time)),
                    "" if result.peak is None else f"{result.peak.bytes / 1e6:.1f}",
                    "" if result.memory is None else f"{result.memory:.4f}",
                    "" if result.peak is None else f"{result.peak.added / 1e6:.1f}",
                    "" if result.call_memory is None else f"{result.call_memory:.4f}",
                    "" if result.target is None else result.target,
                    "" if verdict(result) is None else int(bool(verdict(result))),
                ]
            )


def draw_ratios(results: Sequence[Result], path: Path) -> None:
    """Ratios with their intervals, one panel a setting, and the targets as ticks."""
    from matplotlib.figure import Figure

    settings = list(dict.fromkeys(result.setting for result in results if result.time is not None))
    panels = {name: [r for r in results if r.setting == name and r.time is not None] for name in settings}
    rows = sum(len(panel) for panel in panels.values())
    figure = Figure(figsize=(8, 0.28 * rows + 0.8 * len(settings) + 0.6), layout="constrained")
    heights = [len(panel) + 1 for panel in panels.values()]
    axes = figure.subplots(len(settings), 1, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    for axis, (name, panel) in zip(axes, panels.items(), strict=True):
        for place, result in enumerate(reversed(panel)):
            time = result.time
            assert time is not None
            met = verdict(result)
            color = {None: "0.45", True: "#2a7f3f", False: "#b3261e"}[met]
            error = [[time.median - time.low], [time.high - time.median]]
            axis.errorbar(time.median, place, xerr=error, fmt="o", color=color, capsize=3, markersize=4)
            if result.target is not None:
                axis.plot([result.target], [place], "|", color="black", markersize=12)
        axis.axvline(1.0, color="0.7", linewidth=1, zorder=0)
        labels = [f"{r.name} / {r.reference}" if r.reference != "none" else r.name for r in reversed(panel)]
        axis.set_yticks(range(len(panel)), labels)
        axis.set_title(name, loc="left", fontsize=9)
        axis.tick_params(labelsize=8)
        axis.set_ylim(-0.7, len(panel) - 0.3)
    axes[-1].set_xlabel("time over the reference (bar: target)")
    figure.savefig(path, dpi=150)


def draw_curves(results: Sequence[Result], path: Path) -> None:
    """Time and memory against the number of tokens; ``setting`` is the grid, such as ``14x14``."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(result.name for result in results))
    parts, look = in_panels(names), looks(names)
    figure = Figure(figsize=(11, 4.2 * len(parts)), layout="constrained")
    panels = figure.subplots(len(parts), 2, squeeze=False)
    for (kind, members), (left, right) in zip(parts, panels, strict=True):
        for name in members:
            mine = [result for result in results if result.name == name]
            tokens = [_tokens(result.setting) for result in mine]
            memory = [nan if result.peak is None else result.peak.bytes / 1e6 for result in mine]
            left.plot(tokens, [result.seconds * 1e3 for result in mine], markersize=4, label=name, **look[name])
            right.plot(tokens, memory, markersize=4, label=name, **look[name])
        for axis, label in ((left, "time of one call, ms"), (right, "peak memory of the process, MB")):
            axis.set_xscale("log", base=2)
            axis.set_yscale("log", base=10)
            plain_ticks(axis.xaxis, sorted({_tokens(result.setting) for result in results}))
            axis.tick_params(axis="x", labelrotation=90 if len(axis.get_xticks()) > 5 else 0)
            plain_ticks(axis.yaxis)
            axis.set_xlabel("tokens")
            axis.set_ylabel(label)
            axis.set_title(kind, fontsize=9)
            axis.grid(alpha=0.3)
    label_lines(*panels.flat)
    figure.suptitle("one attention layer; memory with the libraries", fontsize=10)
    figure.savefig(path, dpi=150)


def _tokens(setting: str) -> int:
    height, width = setting.split("x")
    return int(height) * int(width)


def _megabytes(result: Result) -> str:
    """``1200 MB (1.20x) [+450 MB, 1.52x]``: of the process, and what the call added."""
    assert result.peak is not None
    compared = result.name != result.reference
    whole = f" ({result.memory:.2f}x)" if compared and result.memory is not None else ""
    added = f", {result.call_memory:.2f}x" if compared and result.call_memory is not None else ""
    return f"{result.peak.bytes / 1e6:.0f} MB{whole} [+{result.peak.added / 1e6:.0f} MB{added}]"


def _duration(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.2f} ms"
