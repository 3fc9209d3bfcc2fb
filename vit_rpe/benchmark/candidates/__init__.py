"""What is run: models and layers of ours, and the same encoding in other packages."""
