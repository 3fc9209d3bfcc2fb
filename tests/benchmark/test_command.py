"""The command and the jobs behind it, on the smallest models."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch

from vit_rpe.benchmark.candidates.jobs import Job, build
from vit_rpe.benchmark.candidates.peers import PEERS, Shape, counterpart, peers_of
from vit_rpe.benchmark.measuring.compare import Result
from vit_rpe.benchmark.measuring.intervals import Interval
from vit_rpe.benchmark.measuring.memory import Peak, measure_peak
from vit_rpe.benchmark.report import MISS, PASS, draw_curves, draw_ratios, markdown, summary, write_csv
from vit_rpe.cli import main

SMALL = {"size": "nano", "img_size": 32, "patch_size": 8, "depth": 1}


def test_table_marks_what_was_met(tmp_path: Path) -> None:
    peaks = [Peak(bytes=1_000_000_000, before=600_000_000, wall=1, cpu=1), Peak(1_200_000_000, 600_000_000, 1, 1)]
    results = [
        Result("224 px", "none", "", 0.010, None),
        Result("224 px", "bias", "none", 0.011, Interval(1.05, 1.02, 1.08), target=1.03),
        Result("224 px", "cpb", "none", 0.012, Interval(1.20, 1.15, 1.25), target=1.03),
        Result("1024 px", "bias", "none", 2.0, None, peak=peaks[1], reference_peak=peaks[0], target=1.15),
    ]
    rows = markdown(results).splitlines()
    assert rows[3].endswith(f"| 11.00 ms | 1.050 [1.020, 1.080] |  | <= 1.03x | {PASS} |")
    assert rows[4].endswith(f"| <= 1.03x | {MISS} |")
    assert rows[5].endswith(f"| 2.00 s |  | 1200 MB (1.20x) [+600 MB, 1.50x] | <= 1.15x | {MISS} |")
    lines = summary(results).splitlines()[2:]
    assert lines[0].endswith("| bias, cpb | none | <= 1.03x | 1.12x, 1.20x (cpb) | 1 of 2 | ✗ |")
    assert lines[1].endswith("| bias | none | <= 1.15x | 1.20x | 0 of 1 | ✗ |")
    write_csv(results, tmp_path / "r.csv")
    with (tmp_path / "r.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [row["met"] for row in table] == ["", "1", "0", "0"]
    assert float(table[3]["memory_ratio"]) == 1.2
    assert (float(table[3]["call_mb"]), float(table[3]["call_ratio"])) == (600, 1.5)


def test_command_writes_table_csv_and_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="pictures need matplotlib (vit_rpe[viz])")
    words = "benchmark --encodings bias --size nano --img-size 32 --patch-size 8 --depth 1 --mode inference training"
    status = main([*words.split(), "--seconds", "0", "--rounds", "2", "--output", str(tmp_path)])
    assert status == 0
    table = capsys.readouterr().out
    assert "| nano, 32 px, batch 1, training, eager | bias | none |" in table
    assert {path.name for path in tmp_path.iterdir()} == {"results.md", "results.csv", "results.png", "summary.md"}


def test_command_names_what_it_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["benchmark", "--encodings", "bais"]) == 1
    assert "bias" in capsys.readouterr().err
    assert main(["benchmark", "--against", "tim"]) == 1
    assert "timm" in capsys.readouterr().err


@pytest.mark.parametrize("name", [name for name, peer in PEERS.items() if peer.package == "timm"])
def test_peer_and_counterpart_are_alike(name: str) -> None:
    shape = Shape("nano", img_size=32, patch_size=8, depth=1)
    peer, mine = peers_of("timm")[name].build(shape).eval(), counterpart(PEERS[name], shape).eval()
    images = torch.randn(2, 3, 32, 32)
    assert peer(images).shape == mine(images).shape == (2, 1000)
    count = [sum(parameter.numel() for parameter in model.parameters()) for model in (peer, mine)]
    assert abs(count[0] - count[1]) < 0.02 * count[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--suite", "readme", "--encodings", "alibi"], "--encodings means nothing with --suite"),
        (["--suite", "readme", "--device", "auto"], "--device means nothing with --suite"),
        (["--curve", "--img-size", "64"], "--img-size means nothing with --curve"),
        (["--against", "timm", "--encodings", "t5"], "--encodings means nothing with --against"),
        (["--batch-size", "0"], "--batch-size must be an integer of at least 1"),
        (["--against", "timm", "--attn-impl", "eager"], "--attn-impl means nothing with --against"),
        (["--curve", "--batch-size", "1", "8"], "--curve takes one --batch-size, got 1 8"),
        (["--quick"], "--quick means nothing without --suite"),
        (["--largest", "14"], "--largest means nothing without --curve"),
        (["--frozen", "--mode", "training"], "--frozen is for inference"),
    ],
)
def test_command_refuses_what_would_have_no_effect(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["benchmark", *options]) == 1
    assert message in capsys.readouterr().err


def test_profile_shows_what_position_adds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--size", "nano", "--img-size", "32", "--patch-size", "8", "--depth", "2", "--rounds", "2"]
    assert main(["benchmark", "--profile", "--encodings", "bias", *options, "--output", str(tmp_path)]) == 0
    text = (tmp_path / "profile.md").read_text()
    assert text in capsys.readouterr().out
    rows = {row.split("|")[1].strip(): row.split("|")[2:-1] for row in text.splitlines() if row.startswith("|")}
    assert [name.strip() for name in rows["operation"]] == ["none", "bias"]
    assert rows["`aten::index_select`"][0].strip() == "0 us", "a table is looked up for the bias only"
    assert rows["`aten::index_select`"][1].strip().startswith("+")
    assert int(rows["**calls**"][1]) > 0
    assert main(["benchmark", "--profile", "--execution", "compiled"]) == 1
    assert "eager models on the CPU" in capsys.readouterr().err


def test_frozen_positions_are_constants() -> None:
    model, images = build(Job("cpb", size="nano", img_size=32, patch_size=8, depth=2, frozen=True))
    free, _ = build(Job("cpb", size="nano", img_size=32, patch_size=8, depth=2))
    frozen = [type(layer.rpe).__name__ for layer in model.attentions()]
    assert frozen == ["FrozenPosition"] * 2
    with torch.no_grad():
        torch.testing.assert_close(model(images), free(images))


def test_layer_job_takes_tokens() -> None:
    module, x = build(Job("bias", what="layer", size="nano", img_size=6, patch_size=2, batch=2))
    assert module(x).shape == x.shape == (2, 9, 64)


@pytest.mark.slow
def test_peak_is_that_of_the_child() -> None:
    held = torch.ones(64 * 2**20)  # 256 MB here must not count there
    peak = measure_peak(Job("bias", **SMALL), threads=1)
    assert 0 < peak.before <= peak.bytes
    assert peak.bytes < 3 * 2**30
    assert peak.wall > 0
    assert held.numel() == 64 * 2**20


def test_a_child_that_fails_says_why() -> None:
    with pytest.raises(RuntimeError, match="no_such"):
        measure_peak(Job("no_such", **SMALL), threads=1)


def test_curves_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need matplotlib (vit_rpe[viz])")
    rows = [
        Result(f"{side}x{side}", name, "none", side / 1e3, None, peak=Peak(side, 0, 1, 1))
        for side in (7, 14)
        for name in "ab"
    ]
    draw_curves(rows, tmp_path / "c.png")
    ratio = Interval(1.1, 1.0, 1.2)
    draw_ratios([row._replace(time=ratio, target=1.05) for row in rows], tmp_path / "r.png")
    assert (tmp_path / "c.png").stat().st_size > 1000
    assert (tmp_path / "r.png").stat().st_size > 1000
