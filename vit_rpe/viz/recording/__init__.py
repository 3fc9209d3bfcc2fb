"""Watching the attention of a model, and the maps computed from it."""
