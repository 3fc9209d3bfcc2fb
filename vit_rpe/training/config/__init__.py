"""The config of a run: its fields, its files, its options."""
