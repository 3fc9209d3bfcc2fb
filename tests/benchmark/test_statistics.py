"""Ratios, intervals and turns."""

from __future__ import annotations

from math import comb

import pytest

from vit_rpe.benchmark import Timing, interleave, median_interval
from vit_rpe.benchmark.measuring.intervals import missed


def test_interval_is_made_of_order_statistics() -> None:
    values = [5.0, 1.0, 9.0, 3.0, 7.0, 2.0, 8.0, 4.0, 6.0]
    found = median_interval(values)
    # of 9 values the 2nd and the 8th: P(fewer than 2 below the median) = (1 + 9) / 512 < 2.5 %, of 3 it would be 9 %
    assert found == (5.0, 2.0, 8.0)
    assert sum(comb(9, number) for number in range(2)) / 2**9 < 0.025 < sum(comb(9, n) for n in range(3)) / 2**9


def test_few_values_give_their_range_and_none_is_an_error() -> None:
    assert median_interval([2.0]) == (2.0, 2.0, 2.0)
    assert median_interval([3.0, 1.0, 2.0]) == (2.0, 1.0, 3.0)
    with pytest.raises(ValueError, match="at least one"):
        median_interval([])


def test_a_target_is_missed_only_by_the_whole_interval() -> None:
    interval = median_interval([1.02, 1.08, 1.09, 1.10, 1.11, 1.12])
    assert not missed(interval, 1.03)
    assert missed(interval, 1.01)


def test_ratios_are_taken_within_a_round() -> None:
    slow_machine_later = Timing([1.0, 10.0, 100.0])
    twice = Timing([2.0, 20.0, 200.0])
    assert twice.over(slow_machine_later) == (2.0, 2.0, 2.0)


def test_candidates_take_turns_in_changing_order() -> None:
    calls: list[str] = []
    work = {name: (lambda name=name: calls.append(name)) for name in "abc"}
    found = interleave(work, seconds=0.0, rounds=9, least=3, shortest=0.0)
    assert [len(timing.seconds) for timing in found.values()] == [3, 3, 3]
    assert calls[3:] == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]  # behind one call each to warm up


def test_unknown_clock_is_refused() -> None:
    with pytest.raises(ValueError, match="clock"):
        interleave({"a": list}, seconds=0.0, clock="sun")
