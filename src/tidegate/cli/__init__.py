"""The command line: one file per command, all of them listed here.

    commands  all of them together
    explain   show the plan of a pipeline, without running anything
    run       run a pipeline over a folder of files
    asking    status, why, cancel: about the runs of a deployment
    cuts      checkpoint, checkpoints, restore: about the cuts of a run
    chaos     kill a pipeline at every step and compare its results
    worker    run the tasks of a pipeline for clients that deliver to a deployment
    serve     the same, and take runs by HTTP
    monitor   watch the runs of a deployment
    up        a server, monitors and workers together; drain: one of them goes
    submit    send a folder of files to a server, and fetch the results
    flow      begin and watch runs of durable flows; flow_worker: work for them,
              flow_steering: signal, set, tolerate, cancel, pause, resume, retry,
              flow_events, flow_metrics: what happens to them, for people and for machines
    data      write files to try a pipeline with
    demo      run a pipeline on generated data and check the answers
    options   what several commands take
    opening   which deployment and which run a command is about
    planning  the plan of a run, made again from its declaration
    tables    how commands show what they have found
    progress  how a run is told while it works
    logs      what the processes of a deployment write down
    finding   which pipeline a name on the command line means
    failing   how errors are told, to people and to programs

Exit codes: 0 done, 1 failed, 2 the command itself was wrong, 3 timed out, 130 interrupted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.cli.commands import app as app

INTERRUPTED = 130


def __getattr__(name: str) -> object:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tidegate.cli import commands

    return commands.app


def main() -> None:
    """Run the command line; never returns."""
    try:
        # Which takes a moment, in which it may be interrupted.
        from tidegate.cli.commands import app

        app()
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
