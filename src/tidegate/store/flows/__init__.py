"""Flows: runs, tasks, events, metrics."""
