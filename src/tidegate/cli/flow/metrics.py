"""`tidegate flow metrics`: metrics of open runs, for a textfile collector."""

from __future__ import annotations

import typer

from tidegate.cli.arguments.deployments import open_existing
from tidegate.cli.arguments.options import DatabaseUrl, ExistingDeployment
from tidegate.cli.flow.run import flow
from tidegate.cli.output.error_output import reported_errors


@flow.command()
def metrics(deployment: ExistingDeployment, database: DatabaseUrl = None) -> None:
    """Print the metrics of open runs in the text format of Prometheus."""
    with reported_errors(as_json=False), open_existing(deployment, database) as opened:
        from tidegate.flows.metrics import metrics_text

        typer.echo(metrics_text(opened), nl=False)
