"""Where chunks, streams and END enter a run, and where clients wait for it."""
