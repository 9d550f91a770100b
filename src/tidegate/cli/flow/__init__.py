"""`tidegate flow …`: one module per command."""

from tidegate.cli.flow import control, events, metrics, results, worker
from tidegate.cli.flow.run import flow

__all__ = ["control", "events", "flow", "metrics", "results", "worker"]
