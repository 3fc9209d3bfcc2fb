"""The vision transformer: from pixels to features and logits."""
