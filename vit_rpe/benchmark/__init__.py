"""Speed and memory of encodings, side by side with no position and with peers."""

from vit_rpe.benchmark.measuring.intervals import Interval, median_interval
from vit_rpe.benchmark.measuring.timing import Timing, interleave

__all__ = ["Interval", "Timing", "interleave", "median_interval"]
