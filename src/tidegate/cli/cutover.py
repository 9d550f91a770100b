"""`tidegate cutover …`: create an index, switch readers to it and back, remove old ones."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.arguments.deployments import AsJson, open_existing
from tidegate.cli.arguments.loader import find_reindex
from tidegate.cli.arguments.options import DatabaseUrl, ExistingDeployment
from tidegate.cli.flow.render import sentence
from tidegate.cli.flow.run import created, watch_run
from tidegate.cli.output.error_output import printable, reported_errors
from tidegate.cli.output.tables import aligned, clock, json_text

if TYPE_CHECKING:
    from tidegate.cutover.operations import IndexStatus

cutover = typer.Typer(
    name="cutover",
    help="Cutovers: create an index, switch readers to it without downtime, and back.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

ReindexName = Annotated[
    str, typer.Argument(metavar="REINDEX", help="A Reindex, as package.module:attribute.")
]
IndexName = Annotated[
    str, typer.Argument(metavar="INDEX", help="The name of an index, in the schema of its alias.")
]


@cutover.command()
def start(
    name: ReindexName,
    index: IndexName,
    deployment: ExistingDeployment,
    wait: Annotated[bool, typer.Option("--wait", help="Watch it until it has ended.")] = False,
    timeout: Annotated[
        float, typer.Option(min=0, help="Wait no longer than this many seconds.")
    ] = 86_400.0,
    database: DatabaseUrl = None,
) -> None:
    """Create an index and switch readers to it; `flow worker` does the work.

    The same name is the same run; an alias has one cutover at a time.
    """
    with reported_errors(as_json=False):
        found = find_reindex(name)
        with created(deployment, database) as opened:
            from tidegate.cutover import start_cutover

            run = start_cutover(opened, found, index)
            if wait:
                watch_run(run, timeout, quiet=False)
            typer.echo(sentence(run.status()))
            if wait:
                typer.echo(_summary(asdict(run.result("finish"))))


@cutover.command()
def show(
    name: ReindexName,
    deployment: ExistingDeployment,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show the indexes: which one readers use, and how fresh each is."""
    with reported_errors(as_json=as_json):
        found = find_reindex(name)
        with open_existing(deployment, database) as opened:
            from tidegate.cutover import indexes_of

            known = indexes_of(opened, found)
            text = json_text([asdict(index) for index in known])
            typer.echo(text if as_json else _table(found.target.alias, known))


@cutover.command()
def reverse(
    name: ReindexName,
    deployment: ExistingDeployment,
    bound: Annotated[
        float, typer.Option(min=0, help="Seconds to wait until the previous index is fresh.")
    ] = 30.0,
    stale: Annotated[
        bool, typer.Option("--stale", help="Switch at once, also to an index that is behind.")
    ] = False,
    database: DatabaseUrl = None,
) -> None:
    """Switch readers back to the previous index, once it has all changes."""
    with reported_errors(as_json=False):
        found = find_reindex(name)
        with open_existing(deployment, database) as opened:
            from tidegate.cutover import reverse as switch_back

            by = getpass.getuser()
            index = switch_back(opened, found, by=by, bound=bound, allow_stale=stale)
            typer.echo(f"{found.target.alias} points to {index}")


@cutover.command()
def retire(
    name: ReindexName,
    index: IndexName,
    deployment: ExistingDeployment,
    database: DatabaseUrl = None,
) -> None:
    """Remove an index that readers do not use, and its feed."""
    with reported_errors(as_json=False):
        found = find_reindex(name)
        with open_existing(deployment, database) as opened:
            from tidegate.cutover import retire as remove

            remove(opened, found, index)
            typer.echo(f"{index} is removed")


@cutover.command()
def feed(
    name: ReindexName,
    index: IndexName,
    deployment: ExistingDeployment,
    database: DatabaseUrl = None,
) -> None:
    """Start a feed for an index that has none; `flow worker` does the work."""
    with reported_errors(as_json=False):
        found = find_reindex(name)
        with open_existing(deployment, database) as opened:
            from tidegate.cutover import feed as start_feed

            typer.echo(f"run {start_feed(opened, found, index).id} keeps {index} fresh")


# --- output ----------------------------------------------------------------------------------


def _table(alias: str, known: Sequence[IndexStatus]) -> str:
    if not known:
        return f"{alias} has no index; `tidegate cutover start` creates one"
    rows: list[tuple[str, ...]] = [
        ("index", "readers", "kept fresh by", "pending", "behind", "switched to")
    ]
    rows += [_row(it) for it in known if it.is_here]
    notes = [f"  {note}" for it in known if (note := _note(it))]
    return printable("\n".join([alias, *(f"  {line}" for line in aligned(rows)), *notes]))


def _note(it: IndexStatus) -> str:
    if not it.is_here:
        return f"the log is also retained for {it.index}, which is not an index of this deployment"
    if it.held_up_by:
        return f"{it.index} is blocked: {it.held_up_by}"
    if it.is_current and it.run is None:
        return f"readers use {it.index}, which has no feed: `tidegate cutover feed`"
    return ""


def _row(it: IndexStatus) -> tuple[str, ...]:
    return (
        it.index,
        "current" if it.is_current else "-",
        f"run {it.run} of {it.flow}" if it.run else "-",
        "-" if it.pending is None else f"{it.pending:,}",
        "-" if it.behind is None else f"{it.behind:.1f} s",
        clock(it.switched_at) if it.switched_at else "-",
    )


def _summary(cutover: dict[str, object]) -> str:
    return printable(
        "{index}: {rows:,} rows verified, {changes:,} changes consumed; at the switch"
        " {pending_at_switch:,} were pending, the oldest {staleness_at_switch:.2f} s old."
        " Run {feed} keeps it fresh.".format_map(cutover)
    )
