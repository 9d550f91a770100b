"""`tidegate monitor`: watches the runs of a pipeline, or stands by while another does."""

from __future__ import annotations

from typing import Annotated

import typer

from tidegate.cli.error_output import told_errors
from tidegate.cli.loader import find_pipeline
from tidegate.cli.logs import begin_log
from tidegate.cli.options import DatabaseUrl, ExistingDeployment
from tidegate.cli.process_commands import (
    GroupAddress,
    ProcessName,
    WithParent,
    colleague_in,
    process_name,
    refuse_taken_name,
    stand_and_tell,
    told_to_stop,
)


def monitor(
    pipeline: Annotated[
        str,
        typer.Argument(metavar="PIPELINE", help="A registered name, or package.module:attribute."),
    ],
    deployment: ExistingDeployment,
    name: ProcessName = None,
    group: GroupAddress = None,
    database: DatabaseUrl = None,
    with_parent: WithParent = False,
) -> None:
    """Release runs that are complete and hold them to their bounds; needs no Spark.

    Of several monitors one leads, under a lease. When it dies another goes on where it was.
    """
    with told_errors(as_json=False):
        from tidegate.runtime.cluster.roles import Monitoring
        from tidegate.runtime.deployment import open_deployment
        from tidegate.runtime.service import watching
        from tidegate.store import Wakeups

        stopped = told_to_stop(with_parent=with_parent)
        found = find_pipeline(pipeline)
        refuse_taken_name(deployment, group, name, with_parent=with_parent)
        called = process_name(name, "monitor")
        say = begin_log(is_kept=with_parent)
        with (
            open_deployment(deployment, database) as place,
            Wakeups(place.database) as wakeups,
            watching(place, found.name, wakeups, called) as watch,
            colleague_in(deployment, group, called, wakeups) as colleague,
        ):
            if colleague is not None:
                watch.on_release = colleague.tell_news
            stand_and_tell(Monitoring(watch), colleague, stopped, say)
