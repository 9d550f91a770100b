"""Durable flows: runs, tasks, events, metrics, links to pipeline runs."""
