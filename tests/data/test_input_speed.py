"""The benchmark of the input side runs and its two sides do the same amount of work; speed itself is no test."""

import pytest

from vit_rpe.benchmark.input_side.throughput import SETTINGS, run, table
from vit_rpe.cli import main


def test_rows_and_table():
    rows = run(num_images=24, batch_size=8, repeats=1, num_workers=0)
    assert [(row.setting, row.augment) for row in rows] == [(s, a) for s, presets in SETTINGS.items() for a in presets]
    assert all(row.ours > 0 and row.torchvision > 0 for row in rows)
    assert all(row.ratio == row.ours / row.torchvision for row in rows)
    assert len(table(rows).splitlines()) == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [({"settings": ["jpg"]}, "'jpg'.*jpeg"), ({"num_images": 14, "batch_size": 8}, "expected at least 16")],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        run(num_workers=0, repeats=1, **({"settings": ["jpeg"]} | options))


def test_command(capsys):
    words = "data --setting memory --images 5 --batch-size 4 --repeats 1 --workers 0"
    assert main(["benchmark", *words.split()]) == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == ["augment", *SETTINGS["memory"]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("data --repeats 0", "repeats must be an integer of at least 1, got 0"),
        ("data --workers -1", "workers must be at least 0, got -1"),
        ("data --setting jpg", "unknown setting 'jpg'"),
        ("--suite readme data", "--suite is for models"),
        ("--img-size 64 --threads 1 data", "--img-size is for models"),
        ("--quick data", "--quick is for models"),
    ],
)
def test_command_refuses_in_one_line(words, message, capsys):
    assert main(["benchmark", *words.split()]) == 1
    assert message in capsys.readouterr().err
