"""The table of docs/which.md, from the CSV files in docs/results: ``python docs/make/which_table.py``."""

from __future__ import annotations

import csv
from pathlib import Path

RESULTS = Path(__file__).resolve().parents[1] / "results"
HEAD = (
    "| encoding | digits, 5 seeds | the same at 1.5 times the size "
    "| Fashion-MNIST, 3 seeds | at 36 px | time of a ViT-S |\n"
    "|---|---:|---:|---:|---:|---:|"
)


def rows(name: str) -> list[dict[str, str]]:
    """A file's rows."""
    with (RESULTS / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def table() -> str:
    """Best on digits first; an empty cell was not measured."""
    digits = {row["label"]: row for row in rows("digits_summary.csv")}
    clothes = {row["label"]: row for row in rows("fashion_mnist_summary.csv")}
    times = {
        row["name"]: row["ratio"] for row in rows("performance.csv") if row["setting"] == "224 px, inference, batch 1"
    }
    lines = [HEAD]
    for name, row in sorted(digits.items(), key=lambda item: -float(item[1]["accuracy_mean"])):
        other = clothes.get(name, {})
        ratio = times.get({"bias_wide": "bias"}.get(name, name))
        cells = [
            f"`{name}`",
            f"{float(row['accuracy_mean']):.1f} ± {float(row['accuracy_half_interval']):.1f}",
            f"{float(row['accuracy_at_12px']):.1f}",
            f"{float(other['accuracy_mean']):.1f} ± {float(other['accuracy_half_interval']):.1f}" if other else "",
            f"{float(other['accuracy_at_36px']):.1f}" if other else "",
            f"{float(ratio):.2f}x" if ratio else ("1x" if name == "none" else ""),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
