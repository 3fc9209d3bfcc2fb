"""Images per second of the input side, beside torchvision."""
