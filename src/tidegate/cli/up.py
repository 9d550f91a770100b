"""`tidegate up`: a deployment of several processes; `tidegate drain`: one of them goes."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from tidegate.cli.error_output import reported_errors
from tidegate.cli.loader import find_pipeline
from tidegate.cli.logs import begin_log_in
from tidegate.cli.options import (
    DatabaseUrl,
    ExistingDeployment,
    GivenSettings,
    LargestChunk,
    ListenAt,
    SparkCores,
    SparkMaster,
    TokensFile,
)
from tidegate.cli.process_commands import GroupAddress, stop_event
from tidegate.errors import ClusterShared, counted
from tidegate.permissions import PRIVATE, private_folder
from tidegate.settings import put

DRAIN_BOUND = 300.0


def up(  # noqa: PLR0913, PLR0917  every argument is an option of the command
    pipeline: Annotated[
        str,
        typer.Argument(metavar="PIPELINE", help="A registered name, or package.module:attribute."),
    ],
    deployment: ExistingDeployment,
    workers: Annotated[int, typer.Option(min=0, help="Processes that run tasks.")] = 2,
    monitors: Annotated[
        int, typer.Option(min=0, help="Processes that watch the runs; one of them leads.")
    ] = 1,
    listen: ListenAt = "127.0.0.1:8420",
    tokens: TokensFile = None,
    most_mb: LargestChunk = 1024,
    meet_at: Annotated[
        str,
        typer.Option(
            "--group",
            help="Where the processes meet: tcp://HOST:PORT or unix:///PATH.",
            metavar="ADDRESS",
        ),
    ] = "tcp://127.0.0.1:0",
    database: DatabaseUrl = None,
    shards: Annotated[
        int | None, typer.Option(min=1, help="Run on this many shards.", show_default=False)
    ] = None,
    spark: SparkMaster = "local[*]",
    cores: SparkCores = None,
    given: GivenSettings = None,
    stages: Annotated[
        list[str] | None,
        typer.Option(
            help="Stages of the plan that a worker is for, such as s1,s2. Give it several times to"
            " deal the lists out to the workers, in turn.",
            metavar="LIST",
            show_default=False,
        ),
    ] = None,
    wait: Annotated[
        float, typer.Option(min=1, help="Seconds for everybody to be at work.")
    ] = 180.0,
) -> None:
    """Run a pipeline in several processes: a server, monitors and workers.

    Whoever dies is started again; until then the others have its tasks. `tidegate worker` adds one
    by hand, also on another host; `tidegate drain` takes one away. Ctrl-C stops all in good order.
    """
    with reported_errors(as_json=False):
        from tidegate.http import check_listen_address, read_tokens
        from tidegate.runtime.cluster.file_lock import exclusive_use
        from tidegate.runtime.cluster.local_cluster import ClusterSpec, local_cluster
        from tidegate.runtime.deployment import open_deployment

        stopped = stop_event(by_interrupt=True)
        put(os.environ, given or ())
        found = find_pipeline(pipeline)
        check_listen_address(listen, read_tokens(tokens) if tokens else None)
        if database:
            os.environ["TIDEGATE_DATABASE"] = database  # a command line is for everybody to read
        is_cluster = spark.startswith("spark://")
        if is_cluster and workers > 1 and cores is None:
            raise ClusterShared(spark, workers)
        split = ["--shards", str(shards)] if shards else []
        work = ["--spark", spark, *split, *(["--cores", str(cores)] if cores else [])]
        # The server computes next to nothing: it leaves the cluster to those who work.
        serve = ["--listen", listen, "--spark", "local[1]" if is_cluster else spark, *split]
        serve += ["--max-chunk-mb", str(most_mb), *(["--tokens", str(tokens)] if tokens else [])]
        os.umask(PRIVATE)
        private_folder(deployment / "logs")
        # This process holds the deployment open, so that it outlives each of the others.
        with exclusive_use(deployment), open_deployment(deployment, database):
            say = begin_log_in(deployment / "logs" / "up.log")
            wanted = ClusterSpec(pipeline, deployment, workers, monitors, serve, work, stages or ())
            with local_cluster(wanted, meet_at, say) as at_work:
                supervisor = (
                    f"{counted(workers, 'worker')}, {counted(monitors, 'monitor')} and a server"
                )
                say(f"starting {supervisor} for"
                    f" {found.name}; their logs are in {deployment / 'logs'}")  # fmt: skip
                at_work.wait_until_ready(stopped, wait)
                if not stopped.is_set():
                    say(f"everybody is at work; clients: http://{listen}; stop with Ctrl-C")
                at_work.run_until_stopped(stopped)
                say("stopping: what is at work is finished first")
                for stats in at_work.stop():
                    say(f"  {stats}")


def drain(
    worker: Annotated[
        str, typer.Argument(metavar="WORKER", help="Its name in the group, such as worker-1.")
    ],
    deployment: ExistingDeployment,
    group: GroupAddress = None,
    bound: Annotated[
        float, typer.Option("--timeout", min=1, help="Seconds to wait for it.")
    ] = DRAIN_BOUND,
) -> None:
    """Let one worker of a deployment finish what is at work, hand its tasks over, and end.

    The runs go on meanwhile. Exit code 3 says that it has not gone in time, 1 that it was lost.
    """
    with reported_errors(as_json=False):
        from tidegate.errors import NotUp
        from tidegate.runtime.cluster.discovery import find
        from tidegate.runtime.cluster.membership_probe import require_worker, temporary_member
        from tidegate.runtime.cluster.peer import DRAIN

        place = find(deployment, group)
        if place is None:
            raise NotUp(str(deployment))
        with temporary_member(place, "drain") as visitor:
            require_worker(visitor, worker)
            visitor.order(worker, DRAIN)
            _say(f"{worker} finishes what is at work")
            gone = visitor.wait_until_gone(worker, bound)
        if gone is None:
            _say(f"{worker} has not gone after {bound:g} s; it goes on finishing")
            raise typer.Exit(3)
        if gone.last is None:
            _say(f"{worker} was lost before it could hand over; others take its tasks in seconds")
            raise typer.Exit(1)
        _say(f"{worker} has handed over and gone")


def _say(text: str) -> None:
    typer.echo(text, err=True)
