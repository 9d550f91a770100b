"""The command line: one file per command, all of them listed in `commands`.

    demo, init, data                        try it: demonstrations, a new project, sample data
    explain                                 print the plan of a pipeline
    run                                     run a pipeline over a folder of files
    up, serve, worker, monitor, drain       the processes of a deployment
    submit                                  send a folder of files to a server
    runs (status, why, cancel), results     the runs of a deployment
    checkpoints (checkpoint, restore …)     the checkpoints of a run
    flow, cutover                           durable flows; replacing a search index
    settings, chaos                         list the settings; inject faults

    processes/    the commands of a deployment's processes, and their logs
    arguments/    options, and the pipelines, deployments and runs that arguments name
    output/       tables, progress, errors

Exit codes: 0 done, 1 failed, 2 usage, 3 timed out, 130 interrupted.
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
        # Inside the block: the import takes a second, and may be interrupted.
        from tidegate.cli.commands import app

        app()
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
