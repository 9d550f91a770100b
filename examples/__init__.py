"""Pipelines to learn from, importable as `tidegate_examples`."""
