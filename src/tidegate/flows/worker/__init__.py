"""A flow worker: claims tasks, executes them on threads, commits results in batches."""
