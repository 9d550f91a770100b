"""Checkpoints as clients see them: take one, read its results, restore a run to it."""
