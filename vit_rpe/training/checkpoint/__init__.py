"""What a run leaves behind and how it goes on from there."""
