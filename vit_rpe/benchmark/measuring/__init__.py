"""How it is measured: turns, intervals, peak memory, operations."""
