"""What the models of images and of sequences share: blocks, weights, where positions live."""
