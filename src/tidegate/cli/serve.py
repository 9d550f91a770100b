"""`tidegate serve`: a pipeline at work, for clients that come by HTTP."""

from __future__ import annotations

from typing import Annotated

import typer

from tidegate.cli.failing import told_errors
from tidegate.cli.finding import find_pipeline
from tidegate.cli.logs import begin_log
from tidegate.cli.options import (
    DatabaseUrl,
    ExistingDeployment,
    LargestChunk,
    ListenAt,
    SparkMaster,
    TokensFile,
)
from tidegate.cli.post import (
    GroupAddress,
    ProcessName,
    WithParent,
    colleague_in,
    process_name,
    refuse_taken_name,
    stand_and_tell,
    told_to_stop,
)


def serve(  # noqa: PLR0913, PLR0917  every argument is an option of the command
    pipeline: Annotated[
        str,
        typer.Argument(metavar="PIPELINE", help="A registered name, or package.module:attribute."),
    ],
    deployment: ExistingDeployment,
    listen: ListenAt = "127.0.0.1:8420",
    tokens: TokensFile = None,
    most_mb: LargestChunk = 1024,
    database: DatabaseUrl = None,
    shards: Annotated[
        int | None, typer.Option(min=1, help="Run on this many shards.", show_default=False)
    ] = None,
    spark: SparkMaster = "local[*]",
    tasks: Annotated[
        bool, typer.Option(help="Run tasks as well, or leave them to workers.")
    ] = True,
    name: ProcessName = None,
    group: GroupAddress = None,
    with_parent: WithParent = False,
) -> None:
    """Run the tasks of a pipeline and take its runs by HTTP, until interrupted.

    Without --tokens only programs on this machine are let in.
    """
    with told_errors(as_json=False):
        from tidegate.run.deployment import open_deployment
        from tidegate.run.post import Duty, Fronting, Working
        from tidegate.run.service import Service, fronting, serving
        from tidegate.serve import Limits, read_tokens, refuse_unsafe, serving_http
        from tidegate.spark import session_on

        stopped = told_to_stop(with_parent=with_parent)
        found = find_pipeline(pipeline)
        refuse_taken_name(deployment, group, name, with_parent=with_parent)
        called = process_name(name, "server")
        say = begin_log(is_kept=with_parent)
        known = None if tokens is None else read_tokens(tokens)
        refuse_unsafe(listen, known)  # Spark takes some seconds to start
        with (
            open_deployment(deployment, database) as place,
            session_on(spark) as session,
            (serving if tasks else fronting)(
                place, found, session, shards, process=called
            ) as service,
            serving_http(service, place, listen, known, Limits(most_mb << 20)) as listening,
            colleague_in(deployment, group, called, service.wakeups) as colleague,
        ):
            if colleague is not None:
                service.watch.on_release = service.server.on_news = colleague.tell_news
            say(f"serving {found.name} at {listening.url}")
            duty: Duty = Fronting(service)
            if isinstance(service, Service):
                duty = Working(service, "server")
            stand_and_tell(duty, colleague, stopped, say)
