"""Every option of every command does something: set to another value, it changes what is printed or written, or it is
refused. What only changes how something is computed is listed with the reason.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from matplotlib.figure import Figure

from tests.commands.conftest import NAME
from vit_rpe.benchmark.measuring.compare import Result
from vit_rpe.benchmark.measuring.memory import Peak
from vit_rpe.cli import COMMANDS, OptionParser, main
from vit_rpe.commands.parity import Difference

DEVICE = "where it is computed; on this machine auto and cpu are one"
CHUNKS = "images at a time; the result does not depend on it"


class Case(NamedTuple):
    """``base``: the words of a run, ``{run}``, ``{image}`` ... filled in; ``options``: words that must change its
    outcome or be refused; ``unseen``: options without a visible outcome, and why."""

    base: str
    options: dict[str, str]
    unseen: dict[str, str] = {}


SHOWN = {
    "--checkpoint": "--checkpoint {other}",
    "--model": f"--model {NAME}",
    "--pretrained": "--pretrained",
    "--hf": "--hf somebody/model",
    "--published": "--published {other}/model.safetensors",
    "--weights": "--weights {other}/model.safetensors",
    "--model-args": '--model-args {{"depth":1}}',
    "--image": "--image {image2}",
    "--img-size": "--img-size 12 8",
    "--output": "--output elsewhere",
}
CASES = {
    "evaluate": Case(
        "--checkpoint {run} --workers 0",
        {
            "--checkpoint": "--checkpoint {other}",
            "--img-size": "--img-size 12",
            "--data.name": "--data.name folder",
            "--data.path": "--data.path {folder}",
            "--split": "--split train",
            "--json": "--json",
            "--confusion": "--confusion confusion.png",
        },
        {"--device": DEVICE, "--batch-size": CHUNKS, "--workers": "processes that read; the same images"},
    ),
    "predict": Case(
        "{image} --checkpoint {run}",
        {
            "IMAGE": "{image2}",
            "--checkpoint": "--checkpoint {other}",
            "--top": "--top 2",
            "--img-size": "--img-size 12",
            "--json": "--json",
        },
        {"--device": DEVICE, "--batch-size": CHUNKS},
    ),
    "extrapolate": Case(
        "--checkpoint {run} --factors 1 --shifts 0",
        {
            "--checkpoint": "--checkpoint {other}",
            "--label": "--label mine",
            "--output": "--output other.png",
            "--factors": "--factors 1 2",
            "--shifts": "--shifts 0.25",
            "--resample": "--resample",
            "--without-position": "--without-position",
            "--data.path": "--data.path {folder}",
        },
        {"--device": DEVICE},
    ),
    "list": Case(
        "{runs}", {"FOLDER": "{run}", "--sort": "--sort accuracy", "--json": "--json", "--shipped": "--shipped"}
    ),
    "study": Case(
        "--config study/digits --list",
        {
            "--config": "--config study/cifar10",
            "--output": "--output {study}",
            "--jobs": "--jobs 2",
            "--only": "--only rope*",
            "--also": "--also {study_table}",
            "--list": "--report",
            "--report": "--report",
            "--launcher": "--launcher slurm",
            "--slurm": "--slurm {{timeout_min:60}}",
        },
    ),
    "speedrun": Case(
        "--quick --encodings none",
        {
            "--data.path": "--data.path elsewhere",
            "--pack": "--pack digits",
            "--minutes": "--minutes 1",
            "--encodings": "--encodings bias",
            "--seeds": "--seeds 1",
            "--output": "--output elsewhere",
        },
        {"--device": DEVICE, "--quick": "in every run here: the others take minutes"},
    ),
    "visualize": Case(
        "--checkpoint {run} --image {image}",
        {
            **SHOWN,
            "--text": "--text abc",
            "--query": "--query 1,2",
            "--layers": "--layers 0",
            "--heads": "--heads 1",
            "--target": "--target 3",
            "--format": "--format svg",
        },
        {"--device": DEVICE},
    ),
    "explore": Case("--checkpoint {run} --image {image}", {**SHOWN, "--layers": "--layers 0"}, {"--device": DEVICE}),
    "encodings": Case(
        "",
        {
            "--format": "--format json",
            "--pictures": "--pictures drawn",
            "--gallery": "--gallery gallery.html",
            "--bibtex": "--bibtex bias",
        },
    ),
    "share": Case(
        "--checkpoint {run}",
        {
            "--checkpoint": "--checkpoint {other}",
            "--output": "--output elsewhere",
            "--license": "--license mit",
            "--image": "--image {image}",
            "--note": "--note Mine.",
        },
    ),
    "export": Case(
        "{run}",
        {
            "CHECKPOINT": "--checkpoint {other}",
            "--checkpoint": "--checkpoint {other}",
            "--format": "--format torch_export",
            "--output": "--output there.onnx",
            "--img-size": "--img-size 12",
            "--dynamic-size": "--dynamic-size",
        },
    ),
    "parity": Case(
        "",
        {
            "--depth": "--depth 2",
            "--grid": "--grid 3 4",
            "--export": "--export",
            "--encodings": "--encodings bias",
            "--coverage": "--coverage",
            "--architectures": "--architectures samvit_base_patch16",
            "--maps": "--maps",
            "--families": "--families swin",
        },
    ),
    "benchmark": Case(
        "",
        {
            "--suite": "--suite readme",
            "--quick": "--quick",
            "--minutes": "--minutes 2",
            "--encodings": "--encodings alibi",
            "--against": "--against timm",
            "--curve": "--curve",
            "--profile": "--profile",
            "--largest": "--largest 14",
            "--size": "--size nano",
            "--img-size": "--img-size 64",
            "--patch-size": "--patch-size 32",
            "--depth": "--depth 2",
            "--batch-size": "--batch-size 2",
            "--mode": "--mode training",
            "--execution": "--execution compiled",
            "--frozen": "--frozen",
            "--attn-impl": "--attn-impl eager",
            "--memory": "--memory",
            "--device": "--device cuda:7",
            "--dtype": "--dtype bfloat16",
            "--clock": "--clock cpu",
            "--seconds": "--seconds 3",
            "--neighbour": "--neighbour",
            "--rounds": "--rounds 7",
            "--output": "--output results",
        },
        {"--threads": "how many threads compute: changes times only", "data": "a command of its own, below"},
    ),
    "benchmark data": Case(
        "",
        {
            "--setting": "--setting jpeg",
            "--data.path": "--data.path {folder}",
            "--workers": "--workers 1",
            "--images": "--images 500",
            "--batch-size": "--batch-size 7",
            "--repeats": "--repeats 5",
        },
    ),
}


def parser_of(command: str) -> argparse.ArgumentParser:
    name, _, below = command.partition(" ")
    parser = OptionParser(prog=name)
    importlib.import_module(f"vit_rpe.commands.{name}").add_arguments(parser)
    if below:
        sub = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
        return sub.choices[below]
    return parser


def options_of(command: str) -> set[str]:
    """Spellings that ``--help`` shows; positional ones by their placeholder."""
    shown = [action for action in parser_of(command)._actions if action.help is not argparse.SUPPRESS]
    names = {action.option_strings[0] if action.option_strings else str(action.metavar) for action in shown}
    return names - {"-h"}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is measured or exported, in place of measuring and exporting it."""
    calls: list[str] = []

    def note(name: str, result: Any) -> Any:
        def called(*args: Any, **kwargs: Any) -> Any:
            shown = {key: value for key, value in kwargs.items() if key != "say"}
            calls.append(
                f"{name} {[arg for arg in args if not callable(arg) and not hasattr(arg, 'state_dict')]} {shown}"
            )
            return result

        return called

    row = Result("7x7", "none", "", 1.0, None)
    for place, result in {
        "benchmark.grid.compare_times": [row],
        "benchmark.grid.compare_memory": [row],
        "benchmark.grid.measure_peak": Peak(1, 1, 1.0, 1.0),
        "benchmark.readme_suite.readme_suite": [row],
        "benchmark.measuring.profile.profile": {"none": {}},
        "benchmark.input_side.throughput.run": [],
        "models.export.export_model": 0.0,
        "study.speedrun.train.run": (torch.nn.Identity(), []),
        "commands.parity.compare": Difference(0.0, 0.0, 1.0),
        "commands.parity.print_export_table": None,
        "commands.parity.print_coverage": True,
        "commands.parity.print_families": None,
        "commands.parity.print_maps": None,
    }.items():
        monkeypatch.setattr(f"vit_rpe.{place}", note(place, result))
    savefig = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, path, **_: savefig(self, path, dpi=20))
    monkeypatch.setattr("matplotlib.rcParams", {**__import__("matplotlib").rcParams, "svg.hashsalt": "0"})
    return calls


def outcome(
    command: str, words: list[str], folder: Path, told: list[str], capsys: pytest.CaptureFixture[str]
) -> tuple[Any, str]:
    """Status, what was printed and measured, and the files written; and what went to standard error."""
    folder.mkdir()
    told.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        try:
            status = main([*command.split(), *words])
        except SystemExit as stopped:
            status = int(stopped.code or 0)
    printed = capsys.readouterr()
    files = {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    return (status, printed.out, list(told), files), printed.err


def test_the_table_has_every_option() -> None:
    assert {name.partition(" ")[0] for name in CASES} == set(COMMANDS) - {"train"}  # its options are config keys
    for command, case in CASES.items():
        listed = {*case.options, *case.unseen}
        assert options_of(command) == listed, f"{command}: {options_of(command) ^ listed}"


@pytest.mark.parametrize("command", CASES)
def test_every_option_changes_something_or_is_refused(
    command: str, places: dict[str, str], told: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = CASES[command]
    base = case.base.format(**places).split()
    plain, err = outcome(command, base, tmp_path / "plain", told, capsys)
    assert plain[0] == 0, err
    without = []
    for number, (option, words) in enumerate(case.options.items()):
        extra = words.format(**places).split()
        found, err = outcome(command, [*base, *extra], tmp_path / str(number), told, capsys)
        if found[0] != 0:
            assert err.splitlines()[-1].startswith("error: "), f"{option}: {err}"
            assert err.count("\n") <= 2, f"{option}: {err}"
        elif found == plain:
            without.append(option)
    assert not without, f"{command}: no effect of {', '.join(without)}"


CONTRADICTIONS = [
    ("visualize --checkpoint {run} --model resnet18", "not allowed with argument"),
    ("explore --checkpoint {run} --pretrained", "go with --model"),
    ("explore --model {run}", "is a path: --checkpoint"),
    ("export {run} --checkpoint {other}", "two checkpoints"),
    ("study --config study/digits --list --report", "give one of them"),
    ("study --config study/digits --slurm {{}}", "goes with --launcher slurm"),
    ("study --config study/digits --launcher slurm --jobs 2", "--jobs is for this machine"),
    ("study --config study/digits --report --only rope*", "--only chooses what runs"),
    ("study --config study/digits --jobs 0", "--jobs must be an integer of at least 1"),
    ("encodings --pictures out --format json", "--pictures draws instead"),
    ("encodings --bibtex bias --format json", "--bibtex prints entries instead"),
    ("encodings --bibtex bias --pictures out", "two different things"),
    ("speedrun", "give --minutes N, or --quick"),
    ("speedrun --quick --minutes 3", "give --minutes N, or --quick"),
    ("speedrun --minutes 3", "--data.path names packed images"),
    ("speedrun --pack digits", "--pack writes into --output"),
    ("speedrun --pack digits --output there --quick", "--pack trains nothing: leave out --quick"),
    ("speedrun --pack digits --output there --seeds 1 2", "--pack trains nothing: leave out --seeds"),
    ("speedrun --quick --encodings rop", "did you mean"),
    ("parity --encodings bias", "--encodings goes with --export"),
    ("parity --architectures swin_tiny_patch4_window7_224", "--architectures goes with --coverage"),
    ("parity --maps --depth 1", "--maps takes small models of its own"),
    ("parity --families swin", "--families goes with --maps"),
    ("parity --coverage --depth 1", "--coverage takes every architecture at a size of its own"),
    ("benchmark data --setting memory --data.path {folder}", "--data.path is for --setting jpeg"),
    ("benchmark --depth 2 data", "is for models and means nothing"),
    ("extrapolate --checkpoint {run} --resample", "--resample is for language models"),
    ("evaluate --checkpoint {run} --batch-size 0", "--batch-size must be an integer of at least 1"),
    ("evaluate --checkpoint {run} --confusion nowhere/at/all.png", "there is no such folder"),
    ("extrapolate --checkpoint {run} --factors -1", "expected a finite number above 0, got '-1'"),
    ("extrapolate --checkpoint {run} --factors nan", "expected a finite number above 0, got 'nan'"),
    ("extrapolate --checkpoint {run} --shifts 7", "expected a number from -1 to 1, got '7'"),
    ("benchmark --seconds nan", "--seconds must be a finite number of at least 0"),
    ("predict {image} --checkpoint {run} --device cuda:93", "this machine has no such device"),
    ("predict {image} --checkpoint {run} --device gpu", "unknown device 'gpu'"),
]


@pytest.mark.parametrize(("words", "message"), CONTRADICTIONS, ids=[words for words, _ in CONTRADICTIONS])
def test_what_contradicts_is_refused_in_one_line(
    words: str, message: str, places: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, err = outcome(words.split()[0], words.format(**places).split()[1:], tmp_path / "here", [], capsys)
    assert found[0] in (1, 2)
    assert found[1:] == ("", [], {})
    assert message in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
