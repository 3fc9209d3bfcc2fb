"""Training: config, loop, checkpoints and the run folder."""
