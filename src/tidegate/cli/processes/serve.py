"""`tidegate serve`: serves a pipeline by HTTP."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Annotated

import typer

from tidegate.cli.arguments.loader import find_pipeline
from tidegate.cli.arguments.options import (
    DatabaseUrl,
    ExistingDeployment,
    GivenSettings,
    LargestChunk,
    ListenAt,
    PipelineArgument,
    ShardCount,
    SparkMaster,
    TokensFile,
)
from tidegate.cli.output.error_output import reported_errors
from tidegate.cli.processes.logs import begin_log
from tidegate.cli.processes.process_commands import (
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
from tidegate.settings import Settings, set_in_environment


def serve(  # noqa: PLR0913, PLR0917  every argument is an option of the command
    pipeline: PipelineArgument,
    deployment: ExistingDeployment,
    listen: ListenAt = "127.0.0.1:8420",
    tokens: TokensFile = None,
    most_mb: LargestChunk = 1024,
    database: DatabaseUrl = None,
    shards: ShardCount = None,
    spark: SparkMaster = "local[*]",
    given: GivenSettings = None,
    tasks: Annotated[
        bool, typer.Option(help="Run tasks in this process, or leave them to workers.")
    ] = True,
    name: ProcessName = None,
    group: GroupAddress = None,
    with_parent: WithParent = False,
) -> None:
    """Serve a pipeline by HTTP and run its tasks, until interrupted.

    Without --tokens only programs on this machine are served.
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
        set_in_environment(os.environ, given or ())
        found = find_pipeline(pipeline)
        refuse_taken_name(deployment, group, name, with_parent=with_parent)
        called = process_name(name, "server")
        say = begin_log(is_kept=with_parent)
        raise_limit()
        known = None if tokens is None else TokenFile(tokens)
        # Spark may take minutes to start; until then clients get `ServerStarting`.
        limits = HttpLimits.of(Settings.from_environment(os.environ), most_mb << 20)
        with listen_http(listen, known, limits) as http_server, ExitStack() as resources:
            say(f"listening at {http_server.at.url}; starting Spark")
            opened = resources.enter_context(open_deployment(deployment, database))
            session = resources.enter_context(session_on(spark))
            started = (serve if tasks else serve_frontend)(
                opened, found, session, shards, process=called
            )
            service = resources.enter_context(started)
            resources.enter_context(http_server.serve(service, opened))
            peer = resources.enter_context(join_as_peer(deployment, group, called))
            say(f"serving {found.name} at {http_server.at.url}")
            role: Role = ServerRole(service)
            if isinstance(service, PipelineService):
                role = WorkerRole(service, "server")
            run_role(role, peer, stopped, say)
