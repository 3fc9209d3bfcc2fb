"""Studies: a grid of encodings, seeds, sizes and fractions of the data under one recipe."""
