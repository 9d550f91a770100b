"""The coffee queries, as users find them under `tidegate explain coffee`."""

from tidegate_examples.coffee import pipeline

__all__ = ["pipeline"]
