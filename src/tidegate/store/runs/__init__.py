"""Pipeline runs: chunks, channels, step commits, releases, results, status, retention."""
