"""Statistics against values worked out by hand."""

import math

import pytest

from vit_rpe.study.plan import StudyConfig, Variant
from vit_rpe.study.report import markdown_summary, summarise_rows
from vit_rpe.study.statistics import paired, summarise


def test_mean_sd_and_interval_by_hand():
    # values 2, 4, 9: mean 5, squared deviations 9 + 1 + 16 = 26, sd sqrt(13), t(0.975, 2) = 4.302653
    summary = summarise([2.0, 4.0, 9.0])
    assert summary.count == 3
    assert summary.mean == pytest.approx(5.0)
    assert summary.sd == pytest.approx(3.605551, abs=1e-6)
    assert summary.half == pytest.approx(4.302653 * 3.605551 / 1.7320508, abs=1e-4)


def test_one_value_has_no_spread_and_none_is_an_error():
    single = summarise([7.0])
    assert single.mean == 7.0
    assert math.isnan(single.sd)
    assert math.isnan(single.half)
    assert str(single) == "7.00 (one run)"
    with pytest.raises(ValueError, match="at least one value"):
        summarise([])


def test_paired_differences_use_common_seeds_only():
    # seeds 0 and 2 are common: differences 1 and 3, mean 2, sd sqrt(2), t(0.975, 1) = 12.7062
    difference = paired({0: 5.0, 1: 100.0, 2: 9.0}, {0: 4.0, 2: 6.0, 3: 0.0})
    assert difference is not None
    assert difference.mean == pytest.approx(2.0)
    assert difference.half == pytest.approx(12.7062047, abs=1e-4)
    assert paired({0: 1.0}, {1: 1.0}) is None


def _row(label, seed, accuracy):
    return {
        "label": label,
        "seed": seed,
        "accuracy": accuracy,
        "fraction": 1.0,
        "img_size": "null",
        "parameters": 1234,
        "seconds": 10.0 + seed,
        "images_per_second": 50.0,
        "accuracy_at_16px": accuracy / 2,
    }


def test_summary_is_sorted_and_paired_by_seed():
    study = StudyConfig("s", "digits/vit_nano_bias", (Variant("none"), Variant("bias", "bias")))
    rows = [_row("none", 0, 50.0), _row("none", 1, 54.0), _row("bias", 1, 95.0), _row("bias", 0, 93.0)]
    summary = summarise_rows(study, rows)
    assert [entry["label"] for entry in summary] == ["bias", "none"]
    # differences by seed: 93 - 50 = 43 and 95 - 54 = 41
    assert summary[0]["difference_mean"] == pytest.approx(42.0)
    assert summary[0]["difference_half_interval"] == pytest.approx(12.7062047 * math.sqrt(2) / math.sqrt(2), abs=1e-4)
    assert summary[1]["difference_mean"] == 0
    assert summary[0]["accuracy_at_16px"] == pytest.approx(47.0)
    text = markdown_summary(study, summary)
    assert "| `bias` | 2 | 1,234 | 94.00 ± 12.71 | +42.00 ± 12.71 | 10 | 50 |" in text
    assert "| `none` | 2 | 1,234 | 52.00 ± 25.41 | — |" in text
