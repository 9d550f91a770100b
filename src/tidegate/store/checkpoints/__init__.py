"""Checkpoints: their rows, task state, restore."""
