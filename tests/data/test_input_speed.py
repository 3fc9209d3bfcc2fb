"""The benchmark of the input side runs and its two sides do the same amount of work; speed itself is no test."""

import pytest

from vit_rpe.benchmark.data import SETTINGS, run, table


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
