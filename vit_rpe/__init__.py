"""Relative position encodings for vision transformers."""
