"""Checkpoints of runs: their rows, task state, unaligned checkpoints, restore."""
