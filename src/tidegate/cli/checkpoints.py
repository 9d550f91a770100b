"""`tidegate checkpoint`, `checkpoints` and `restore`: the checkpoints of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.arguments.deployments import (
    AsJson,
    PipelineName,
    RunName,
    find_run,
    open_existing,
)
from tidegate.cli.arguments.options import DatabaseUrl, ExistingDeployment
from tidegate.cli.arguments.plan_loading import DeclaredAs, Shards, declared_plan
from tidegate.cli.output.error_output import reported_errors
from tidegate.cli.output.tables import aligned, clock, json_text, with_times

if TYPE_CHECKING:
    from tidegate.runtime.ingestion.folder_run import CheckpointReport
    from tidegate.store.checkpoints.checkpoints import Checkpoint


def checkpoint(
    run: RunName,
    deployment: ExistingDeployment,
    pipeline: PipelineName = None,
    unaligned: Annotated[
        bool,
        typer.Option(
            "--unaligned",
            help="Do not wait for barriers: store the messages in flight. Such a checkpoint is not"
            " published.",
        ),
    ] = False,
    timeout: Annotated[
        float,
        typer.Option(
            min=0, help="Stop waiting after this many seconds (exit code 3).", metavar="SECONDS"
        ),
    ] = 60.0,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Take a checkpoint of a run: one consistent point of all sources, published by all sinks.

    `tidegate restore` restarts a run from it; `tidegate results` reads it.
    """
    with reported_errors(as_json=as_json), open_existing(deployment, database) as opened:
        from tidegate.runtime.checkpoints.client import take
        from tidegate.store import Notifications

        found = find_run(opened, run, pipeline)
        with Notifications(opened) as notifications:
            taken = take(opened, notifications, found, timeout, unaligned=unaligned)
        text = f"checkpoint {taken.number} of run {run!r} is committed: {taken.seconds:.2f} s"
        text += f", {taken.bytes:,} bytes"
        text += "" if taken.is_published else "; not published, for restoring only"
        typer.echo(json_text(asdict(taken)) if as_json else text)


def checkpoints(
    run: RunName,
    deployment: ExistingDeployment,
    pipeline: PipelineName = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List the retained checkpoints of a run: state, duration, size and slowest task."""
    with reported_errors(as_json=as_json), open_existing(deployment, database) as opened:
        from tidegate.store.checkpoints import checkpoints as checkpoint_store

        found = find_run(opened, run, pipeline)
        known = opened.transact(
            lambda connection: checkpoint_store.checkpoints_of(connection, found)
        )
        typer.echo(json_text([asdict(taken) for taken in known]) if as_json else _table(known))


def restore(  # noqa: PLR0913, PLR0917  every argument is an option of the command
    run: RunName,
    deployment: ExistingDeployment,
    number: Annotated[
        int | None,
        typer.Option(
            "--checkpoint",
            min=1,
            help="Restart from this checkpoint; by default the latest.",
            metavar="N",
            show_default=False,
        ),
    ] = None,
    pipeline: PipelineName = None,
    declared: DeclaredAs = None,
    shards: Shards = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Restart a run from one of its checkpoints; chunks delivered after it are processed again.

    All files of the checkpoint, and the compatibility of its state with the declaration, are
    checked before anything is changed.
    """
    with reported_errors(as_json=as_json), open_existing(deployment, database) as opened:
        found = find_run(opened, run, pipeline)
        plan = declared_plan(opened, found, declared, shards)
        # These import pyspark, though no session is started.
        from tidegate.runtime.checkpoints.restore import restore as restore_run
        from tidegate.runtime.deployment import Deployment
        from tidegate.runtime.task_graph import build_task_graph
        from tidegate.store.checkpoints import checkpoints as checkpoint_store

        files = Deployment(opened, str(deployment.absolute() / "data"))
        restored = restore_run(files, build_task_graph(plan), found, number)
        checkpoint = opened.transact(
            lambda connection: checkpoint_store.committed_checkpoint(connection, restored)
        )
        at = checkpoint.number if checkpoint else number
        text = (
            f"run {run!r} is restored from checkpoint {at}, as incarnation {restored.incarnation}"
        )
        typer.echo(json_text({"checkpoint": at, "run": asdict(restored)}) if as_json else text)


def checkpoint_lines(checkpoints: Sequence[CheckpointReport]) -> list[str]:
    """The lines about checkpoints in the report of a run; none if it took none."""
    if not checkpoints:
        return []
    first = checkpoints[0].number
    earlier = [f"    1 to {first - 1} are no longer retained"] if first > 1 else []
    return [
        "  checkpoints",
        *earlier,
        *(
            f"    {taken.number:<6} {taken.state:<10} {taken.seconds:>8.2f} s"
            f"  {'published' if taken.is_published else 'not published'}"
            for taken in checkpoints
        ),
    ]


def _table(known: Sequence[Checkpoint]) -> str:
    if not known:
        return "no checkpoints"
    rows: list[tuple[str, ...]] = [
        ("number", "state", "seconds", "aligning", "bytes", "slowest task", "triggered")
    ]
    rows += [_row(taken) for taken in known]
    header, *lines = aligned(with_times(rows, "up to", [taken.up_to for taken in known]))
    reasons = (
        f"\n    {taken.reason} ({taken.offender})" if taken.reason else "" for taken in known
    )
    return "\n".join([header, *map(str.__add__, lines, reasons)])


def _row(taken: Checkpoint) -> tuple[str, ...]:
    kind = "" if taken.is_published else " (unpublished)" if taken.is_aligned else " (unaligned)"
    return (
        str(taken.number),
        taken.state.value + kind,
        f"{taken.seconds:.2f}",
        f"{taken.waited:.2f}",
        f"{taken.bytes:,}",
        taken.slowest or "-",
        clock(taken.triggered_at),
    )
