"""What FlexAttention is handed: a function of the logit of a pair, and the blocks of pairs that see something."""
