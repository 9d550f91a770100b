"""Runs: chunks, channels, steps, releases, results, status."""
