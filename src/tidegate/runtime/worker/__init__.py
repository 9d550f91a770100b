"""A worker owns tasks under leases, runs them and restarts them after failures."""
