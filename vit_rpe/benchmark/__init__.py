"""Measurements beside peers, run side by side in one process: the same machine, the same moment."""
