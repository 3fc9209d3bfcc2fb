"""Ways to compute attention with position terms, one a file."""
