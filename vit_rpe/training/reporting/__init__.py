"""What a run shows and leaves for people: lines, pictures, samples of text, trackers."""
