"""Pipelines whose channels are in memory."""
