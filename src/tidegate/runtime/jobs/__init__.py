"""Combines the work of several tasks and runs into Spark jobs."""
