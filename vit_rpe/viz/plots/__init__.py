"""Pictures of attention and position, one kind a file."""
