"""`tidegate checkpoint`, `checkpoints` and `restore`: the cuts of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.deployments import AsJson, PipelineName, RunName, find_run, open_existing
from tidegate.cli.error_output import reported_errors
from tidegate.cli.options import DatabaseUrl, ExistingDeployment
from tidegate.cli.plan_loading import DeclaredAs, Shards, declared_plan
from tidegate.cli.tables import aligned, clock, json_text, with_times

if TYPE_CHECKING:
    from tidegate.store.checkpoints.checkpoints import Checkpoint


def checkpoint(
    run: RunName,
    deployment: ExistingDeployment,
    pipeline: PipelineName = None,
    unaligned: Annotated[
        bool,
        typer.Option(
            "--unaligned",
            help="Do not wait for what is on its way: take it along. Sinks do not show such a cut.",
        ),
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=0, help="Wait no longer than this many seconds.")
    ] = 60.0,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Take a cut of a run now: one point in all its sources, shown by all its sinks.

    A run can be restored to it.
    """
    with reported_errors(as_json=as_json), open_existing(deployment, database) as opened:
        from tidegate.runtime.checkpoints.trigger import take
        from tidegate.store import Notifications

        found = find_run(opened, run, pipeline)
        with Notifications(opened) as notifications:
            taken = take(opened, notifications, found, timeout, unaligned=unaligned)
        told = f"cut {taken.number} of run {run!r} is taken: {taken.seconds:.2f} s"
        told += f", {taken.bytes:,} bytes"
        told += "" if taken.is_published else "; it can be restored, and sinks do not show it"
        typer.echo(json_text(asdict(taken)) if as_json else told)


def checkpoints(
    run: RunName,
    deployment: ExistingDeployment,
    pipeline: PipelineName = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List the checkpoints of a run that are remembered: how long each took, and for whom."""
    with reported_errors(as_json=as_json), open_existing(deployment, database) as opened:
        from tidegate.store.checkpoints import checkpoints as checkpoint_store

        found = find_run(opened, run, pipeline)
        known = opened.transact(
            lambda connection: checkpoint_store.checkpoints_of(connection, found)
        )
        typer.echo(json_text([asdict(it) for it in known]) if as_json else _table(known))


def restore(  # noqa: PLR0913, PLR0917  every argument is an option of the command
    run: RunName,
    deployment: ExistingDeployment,
    number: Annotated[
        int | None,
        typer.Option(
            "--checkpoint",
            min=1,
            help="The cut to go back to; by default the latest.",
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
    """Begin a run again at one of its cuts; what was delivered behind it comes again by itself.

    Whether all files of the cut are intact, and whether what it keeps fits the declaration, is
    checked before anything is changed.
    """
    with reported_errors(as_json=as_json), open_existing(deployment, database) as opened:
        found = find_run(opened, run, pipeline)
        plan = declared_plan(opened, found, declared, shards)
        # These load Spark, though no session of it is needed.
        from tidegate.runtime.checkpoints.restore import restore as restored_to
        from tidegate.runtime.deployment import Deployment
        from tidegate.runtime.task_graph import build_task_graph
        from tidegate.store.checkpoints import checkpoints as checkpoint_store

        place = Deployment(opened, str(deployment.absolute() / "data"))
        restored = restored_to(place, build_task_graph(plan), found, number)
        checkpoint = opened.transact(
            lambda connection: checkpoint_store.committed_checkpoint(connection, restored)
        )
        at = checkpoint.number if checkpoint else number
        told = f"run {run!r} goes on from cut {at}, as incarnation {restored.incarnation}"
        typer.echo(json_text({"checkpoint": at, "run": asdict(restored)}) if as_json else told)


def _table(known: Sequence[Checkpoint]) -> str:
    if not known:
        return "no checkpoints"
    rows: list[tuple[str, ...]] = [
        ("number", "state", "seconds", "aligning", "bytes", "slowest task", "triggered")
    ]
    rows += [_row(it) for it in known]
    header, *lines = aligned(with_times(rows, "up to", [it.up_to for it in known]))
    reasons = (f"\n    {it.reason} ({it.offender})" if it.reason else "" for it in known)
    return "\n".join([header, *map(str.__add__, lines, reasons)])


def _row(it: Checkpoint) -> tuple[str, ...]:
    kind = "" if it.is_published else " (quiet)" if it.is_aligned else " (unaligned)"
    return (
        str(it.number),
        it.state.value + kind,
        f"{it.seconds:.2f}",
        f"{it.waited:.2f}",
        f"{it.bytes:,}",
        it.slowest or "-",
        clock(it.triggered_at),
    )
