"""The page in which a person points at a patch and sees where a model looks."""
