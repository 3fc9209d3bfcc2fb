"""What is tuned for the CPU."""
