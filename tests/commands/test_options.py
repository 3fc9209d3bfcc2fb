"""Words of the command line: spelled alike everywhere, unknown ones refused with the closest, files of any name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.test_effects import CASES, options_of, outcome, parser_of
from vit_rpe.cli import COMMANDS, main
from vit_rpe.commands._options import Renamed
from vit_rpe.training.config.shipped import config_folder
from vit_rpe.training.config.yaml_text import load_yaml

ROOT = Path(__file__).resolve().parent.parent.parent
ONE_SPELLING = {
    "--output": {"--out", "--dest", "--save", "--to"},
    "--checkpoint": {"--run", "--ckpt"},
    "--batch-size": {"--batch", "--batch_size"},
    "--encodings": {"--rpe", "--encoding"},
    "--data.path": {"--path", "--data-path", "--data_path", "--data"},
    "--data.name": {"--data-name", "--dataset"},
    "--img-size": {"--img_size", "--image-size", "--size-px"},
    "--workers": {"--num-workers", "--num_workers"},
    "--image": {"--images", "--img"},
    "--device": {"--accelerator"},
}
BATCH_OF_IMAGES = ("benchmark data", "--images")  # a number of images, not files


def test_one_option_has_one_spelling_over_all_commands() -> None:
    for command in CASES:
        for option, others in ONE_SPELLING.items():
            wrong = {name for name in options_of(command) & others if (command, name) != BATCH_OF_IMAGES}
            assert not wrong, f"{command}: {wrong} instead of {option}"
        assert not [name for name in options_of(command) if "_" in name], command


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "train"])
def test_an_unknown_option_is_told_first_and_with_the_closest(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Before what is missing, so that a typing error in a required option is called by its name."""
    option = max([name for name in options_of(command) if name.startswith("--")], key=len)
    option = option if len(option) > 6 else "--plugin"
    typed = option.replace("e", "", 1) if "e" in option else option[:-1]
    for word in (typed, f"{typed}=3", option.replace("-", "_")[2:].join(["--", ""]) + "x"):
        with pytest.raises(SystemExit) as stopped:
            main([command, word, "3"])
        err = capsys.readouterr().err
        assert stopped.value.code == 2
        assert err.count("\n") == 1
        assert f"unknown option {word.split('=')[0]} (did you mean '--" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["evaluate", "--checkpoint", "x", "--split", "vall"], "did you mean 'val'?"),
        (["encodings", "--format", "jsn"], "did you mean 'json'?"),
        (["study", "--config", "study/digit"], "did you mean 'study/digits'?"),
        (["export", "run", "--form", "onnx"], "unknown option --form (did you mean '--format'?)"),
        (["--verison"], "did you mean '--version'?"),
        (["predict", "--checkpoint", "x"], "required: IMAGE"),
        (["visualize", "--model", "x", "--img-size", "big"], "invalid int value: 'big'"),
    ],
)
def test_words_that_are_wrong_are_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = main(words)
    except SystemExit as stopped:
        status = stopped.code  # type: ignore[assignment]
    err = capsys.readouterr().err
    assert status in (1, 2)
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err


def test_old_spellings_work_with_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    old = {
        ("visualize", "--out"): "--output",
        ("explore", "--out"): "--output",
        ("benchmark", "--batch"): "--batch-size",
        ("benchmark data", "--path"): "--data.path",
        ("parity", "--rpe"): "--encodings",
    }
    found = {
        (command, action.option_strings[0]): action.new
        for command in CASES
        for action in parser_of(command)._actions
        if isinstance(action, Renamed)
    }
    assert found == old
    args = parser_of("explore").parse_args(["--model", "x", "--out", "page.html"])
    assert args.output == "page.html"
    assert capsys.readouterr().err == "note: --out is now --output; the old name goes in the next release\n"
    args = parser_of("benchmark").parse_args(["--batch", "1", "8"])
    assert args.batch == [1, 8]


def test_a_study_is_named_before_it_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (status, out, _, files), _ = outcome("study", [], tmp_path / "here", [], capsys)
    assert (status, files) == (2, {})
    assert "vit-rpe study --config study/digits" in out
    study = load_yaml((config_folder() / "study" / "digits.yaml").read_text(encoding="utf-8"))
    variants, seeds = len(study["variants"]), len(study["seeds"])
    assert f"{variants * seeds} runs: {variants} variants, {seeds} seeds" in out


@pytest.mark.parametrize("command", ["visualize", "explore"])
def test_without_images_the_run_shows_its_own(
    command: str,
    places: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--checkpoint", places["run"]]
    (status, out, _, files), err = outcome(command, words, tmp_path / "here", [], capsys)
    assert status == 0, err
    if command == "explore":
        assert "4 images" in out
    else:
        stems = {Path(name).stem.rpartition("-")[0] for name in files if "split" in name}
        assert len(stems) == 4
        assert {stem.partition("_")[0] for stem in stems} == {"0", "3", "6", "9"}  # of classes that differ


def test_without_data_an_image_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explore", "--model", "vit_rpe_nano_patch2_8"]) == 1
    err = capsys.readouterr().err
    assert "random weights here" in err
    assert "comes without data of its own: use --image PATH ..." in err


@pytest.mark.skipif(sys.platform != "linux", reason="other file systems refuse such names")
def test_names_that_are_no_text_are_printed_somehow(places: dict[str, str], tmp_path: Path) -> None:
    """In a process of its own: the streams of a real terminal, strict about what they encode."""
    strange = os.fsencode(tmp_path) + b"/caf\xe9.png"
    Path(os.fsdecode(strange)).write_bytes(Path(places["image"]).read_bytes())
    script = f"""
import sys
from vit_rpe.cli import main
strange, run = {strange!r}.decode("utf-8", "surrogateescape"), {places["run"]!r}
shown = ["--checkpoint", run, "--image", strange]
assert main(["predict", strange, "--checkpoint", run]) == 0
assert main(["predict", strange, "--checkpoint", run, "--json"]) == 0
assert main(["explore", *shown, "--output", "page.html"]) == 0
assert main(["visualize", *shown, "--layers", "0", "--heads", "0", "--format", "html"]) == 0
assert main(["predict", strange + "x", "--checkpoint", run]) == 1
assert main(["evaluate", "--checkpoint", strange]) == 1
assert main(["evaluate", "--checkpoint", run, "--data.path", strange]) == 1
assert main(["study", "--config", strange]) == 1
assert main(["export", strange]) == 1
assert main(["train", "--config", strange]) == 1
"""
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8:strict", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "caf\\xe9.png" in done.stdout  # the byte, escaped
    assert "caf\\\\xe9" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_reader_that_goes_away_is_no_error() -> None:
    """As in ``vit-rpe encodings | head``: what cannot be written any more is not reported, not even at exit."""
    reader, writer = os.pipe()
    os.close(reader)
    code = "import sys; from vit_rpe.cli import main; sys.exit(main(['encodings']))"
    done = subprocess.run([sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")
