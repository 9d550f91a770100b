"""`tidegate serve`: a pipeline at work, for clients that come by HTTP."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Annotated

import typer

from tidegate.cli.error_output import reported_errors
from tidegate.cli.loader import find_pipeline
from tidegate.cli.logs import begin_log
from tidegate.cli.options import (
    DatabaseUrl,
    ExistingDeployment,
    GivenSettings,
    LargestChunk,
    ListenAt,
    SparkMaster,
    TokensFile,
)
from tidegate.cli.process_commands import (
    GroupAddress,
    ProcessName,
    WithParent,
    join_as_peer,
    process_name,
    refuse_taken_name,
    run_role,
    stop_event,
)
from tidegate.permissions import PRIVATE
from tidegate.settings import Settings, put


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
    given: GivenSettings = None,
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
    with reported_errors(as_json=False):
        from tidegate.http import HttpLimits, TokenFile, listen_http
        from tidegate.http.server.descriptors import raise_limit
        from tidegate.runtime.cluster.roles import Role, ServerRole, WorkerRole
        from tidegate.runtime.deployment import open_deployment
        from tidegate.runtime.service import PipelineService, serve, serve_frontend
        from tidegate.spark import session_on

        stopped = stop_event(with_parent=with_parent)
        os.umask(PRIVATE)
        put(os.environ, given or ())
        found = find_pipeline(pipeline)
        refuse_taken_name(deployment, group, name, with_parent=with_parent)
        called = process_name(name, "server")
        say = begin_log(is_kept=with_parent)
        raise_limit()
        known = None if tokens is None else TokenFile(tokens)
        # Spark takes seconds or minutes to start: meanwhile clients get `ServerStarting`.
        limits = HttpLimits.of(Settings.from_environment(os.environ), most_mb << 20)
        with listen_http(listen, known, limits) as http_server, ExitStack() as held:
            say(f"listening at {http_server.at.url}; clients wait until Spark has started")
            place = held.enter_context(open_deployment(deployment, database))
            session = held.enter_context(session_on(spark))
            started = (serve if tasks else serve_frontend)(
                place, found, session, shards, process=called
            )
            service = held.enter_context(started)
            held.enter_context(http_server.serve(service, place))
            peer = held.enter_context(join_as_peer(deployment, group, called))
            say(f"serving {found.name} at {http_server.at.url}")
            duty: Role = ServerRole(service)
            if isinstance(service, PipelineService):
                duty = WorkerRole(service, "server")
            run_role(duty, peer, stopped, say)
