"""Runs pipelines: ingestion, tasks, Spark jobs, workers, monitor, checkpoints, processes."""
