"""`tidegate up`: runs a deployment of several processes; `tidegate drain`: stops a worker."""

from __future__ import annotations

import os
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
    SparkCores,
    SparkMaster,
    TokensFile,
)
from tidegate.cli.output.error_output import reported_errors
from tidegate.cli.processes.logs import begin_log_in
from tidegate.cli.processes.process_commands import GroupAddress, stop_event
from tidegate.errors import ClusterShared, counted
from tidegate.permissions import PRIVATE, private_folder
from tidegate.settings import set_in_environment

DRAIN_BOUND = 300.0


def up(  # noqa: PLR0913, PLR0917  every argument is an option of the command
    pipeline: PipelineArgument,
    deployment: ExistingDeployment,
    workers: Annotated[int, typer.Option(min=0, help="The number of workers.")] = 2,
    monitors: Annotated[
        int, typer.Option(min=0, help="The number of monitors, of which one leads.")
    ] = 1,
    listen: ListenAt = "127.0.0.1:8420",
    tokens: TokensFile = None,
    most_mb: LargestChunk = 1024,
    meet_at: Annotated[
        str,
        typer.Option(
            "--group",
            help="The address of the process group: tcp://HOST:PORT or unix:///PATH.",
            metavar="ADDRESS",
        ),
    ] = "tcp://127.0.0.1:0",
    database: DatabaseUrl = None,
    shards: ShardCount = None,
    spark: SparkMaster = "local[*]",
    cores: SparkCores = None,
    given: GivenSettings = None,
    stages: Annotated[
        list[str] | None,
        typer.Option(
            help="Stages of the plan for a worker, such as s1,s2. If given several times, the lists"
            " are assigned to the workers in turn.",
            metavar="LIST",
            show_default=False,
        ),
    ] = None,
    wait: Annotated[
        float,
        typer.Option(min=1, help="Seconds for all processes to start.", metavar="SECONDS"),
    ] = 180.0,
) -> None:
    """Run a deployment of several processes: a server, monitors and workers.

    A process that fails is restarted; until then the other workers run its tasks. `tidegate worker`
    adds a worker, also on another host; `tidegate drain` stops one. Ctrl-C stops all gracefully.
    """
    with reported_errors(as_json=False):
        from tidegate.http import check_listen_address, read_tokens
        from tidegate.runtime.cluster.file_lock import exclusive_use
        from tidegate.runtime.cluster.local_cluster import ClusterSpec, local_cluster
        from tidegate.runtime.deployment import open_deployment

        stopped = stop_event(by_interrupt=True)
        set_in_environment(os.environ, given or ())
        found = find_pipeline(pipeline)
        check_listen_address(listen, read_tokens(tokens) if tokens else None)
        if database:
            os.environ["TIDEGATE_DATABASE"] = database  # command lines are visible to all users
        is_cluster = spark.startswith("spark://")
        if is_cluster and workers > 1 and cores is None:
            raise ClusterShared(spark, workers)
        split = ["--shards", str(shards)] if shards else []
        work = ["--spark", spark, *split, *(["--cores", str(cores)] if cores else [])]
        # The server computes little: it leaves the cluster to the workers.
        serve = ["--listen", listen, "--spark", "local[1]" if is_cluster else spark, *split]
        serve += ["--max-chunk-mb", str(most_mb), *(["--tokens", str(tokens)] if tokens else [])]
        os.umask(PRIVATE)
        logs = deployment / "logs"
        private_folder(logs)
        # This process keeps PostgreSQL running when other processes are restarted.
        with exclusive_use(deployment), open_deployment(deployment, database):
            say = begin_log_in(logs / "up.log")
            spec = ClusterSpec(pipeline, deployment, workers, monitors, serve, work, stages or ())
            with local_cluster(spec, meet_at, say) as cluster:
                started = f"{counted(workers, 'worker')}, {counted(monitors, 'monitor')}"
                say(f"starting {started} and a server for {found.name}; logs are in {logs}")
                cluster.wait_until_ready(stopped, wait)
                if not stopped.is_set():
                    say(f"all processes are running; clients: http://{listen}; stop with Ctrl-C")
                cluster.run_until_stopped(stopped)
                say("stopping: finishing running jobs")
                for stats in cluster.stop():
                    say(f"  {stats}")


def drain(
    worker: Annotated[
        str, typer.Argument(metavar="WORKER", help="The worker's name, such as worker-1.")
    ],
    deployment: ExistingDeployment,
    group: GroupAddress = None,
    bound: Annotated[
        float,
        typer.Option(
            "--timeout",
            min=1,
            help="Stop waiting after this many seconds (exit code 3).",
            metavar="SECONDS",
        ),
    ] = DRAIN_BOUND,
) -> None:
    """Drain a worker: it finishes running jobs, hands its tasks over and ends.

    Runs continue meanwhile. The exit code is 1 if the worker was lost before it handed over.
    """
    with reported_errors(as_json=False):
        from tidegate.errors import NotUp
        from tidegate.runtime.cluster.discovery import find
        from tidegate.runtime.cluster.membership_probe import require_worker, temporary_member
        from tidegate.runtime.cluster.peer import DRAIN

        address = find(deployment, group)
        if address is None:
            raise NotUp(str(deployment))
        with temporary_member(address, "drain") as visitor:
            require_worker(visitor, worker)
            visitor.order(worker, DRAIN)
            _say(f"draining {worker}")
            departure = visitor.wait_until_gone(worker, bound)
        if departure is None:
            _say(f"{worker} has not ended after {bound:g} s; it is still draining")
            raise typer.Exit(3)
        if departure.last is None:
            _say(f"{worker} was lost before it handed over; other workers take its tasks")
            raise typer.Exit(1)
        _say(f"{worker} has handed over and ended")


def _say(text: str) -> None:
    typer.echo(text, err=True)
