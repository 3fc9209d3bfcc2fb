"""Trained models on other data: other image sizes, shifts, context lengths."""
