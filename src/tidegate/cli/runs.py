"""`tidegate status`, `why` and `cancel`: the runs of a deployment, without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
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
from tidegate.cli.output.error_output import reported_errors
from tidegate.cli.output.tables import aligned, clock, json_text, with_times
from tidegate.errors import NothingToCancel

if TYPE_CHECKING:
    from tidegate.store import Database, RunFacts, RunInfo, RunSummary
    from tidegate.store.runs.status import StageStatus

MaybeRunName = Annotated[
    str | None,
    typer.Argument(metavar="[RUN]", help="Print this run stage by stage.", show_default=False),
]


def status(
    deployment: ExistingDeployment,
    run: MaybeRunName = None,
    pipeline: PipelineName = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List the runs of a deployment, or print the progress of one run stage by stage."""
    with reported_errors(as_json=as_json), open_existing(deployment, database) as opened:
        from tidegate.store import overview

        if run is not None:
            typer.echo(_status_of(opened, run, pipeline, as_json=as_json))
            return
        found = opened.transact(lambda connection: overview(connection, pipeline))
        typer.echo(json_text([asdict(summary) for summary in found]) if as_json else _table(found))


def why(
    run: RunName,
    deployment: ExistingDeployment,
    pipeline: PipelineName = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Print why a run is not complete: what is missing, from which task or source, since when."""
    with reported_errors(as_json=as_json), open_existing(deployment, database) as opened:
        from tidegate.runtime.monitor.diagnosis import reasons
        from tidegate.store import run_facts

        found = find_run(opened, run, pipeline)
        facts = opened.transact(lambda connection: run_facts(connection, found))
        if as_json:
            typer.echo(
                json_text(
                    {**asdict(facts), "reasons": [asdict(reason) for reason in reasons(facts)]}
                )
            )
        else:
            typer.echo("\n".join(_explained(facts)))


def cancel(
    run: RunName,
    deployment: ExistingDeployment,
    pipeline: PipelineName = None,
    database: DatabaseUrl = None,
) -> None:
    """Cancel a run; its name can be used again at once."""
    with reported_errors(as_json=False), open_existing(deployment, database) as opened:
        from tidegate.store import RunState, close_run

        found = find_run(opened, run, pipeline)
        if not opened.transact(lambda c: close_run(c, found, RunState.CANCELLED)):
            raise NothingToCancel(run=run, how=found.state.value)
        typer.echo(f"run {run!r} is cancelled; the sweeper of a worker removes its files")


def _status_of(database: Database, name: str, pipeline: str | None, *, as_json: bool) -> str:
    from tidegate.store import run_facts
    from tidegate.store.runs.status import stages

    run = find_run(database, name, pipeline)
    facts = database.transact(lambda connection: run_facts(connection, run))
    found = stages(facts)
    if as_json:
        sources, listed = map(asdict, facts.sources), map(asdict, found)
        return json_text({"run": asdict(run), "sources": [*sources], "stages": [*listed]})
    return "\n".join(_by_stage(facts, found))


# ── output ──


def _table(runs: Sequence[RunSummary]) -> str:
    if not runs:
        return "no runs"
    rows: list[tuple[str, ...]] = [
        ("run", "pipeline", "state", "chunks", "sources closed", "results", "begun")
    ]
    names = Counter(summary.run.name for summary in runs)
    rows += [_row(summary, is_repeated=names[summary.run.name] > 1) for summary in runs]
    header, *lines = aligned(rows)
    causes = (f"\n    {summary.run.cause}" if summary.run.cause else "" for summary in runs)
    return "\n".join([header, *map(str.__add__, lines, causes)])


def _row(summary: RunSummary, *, is_repeated: bool) -> tuple[str, ...]:
    """Runs with the same name are printed with their numbers."""
    name = summary.run.key if is_repeated else summary.run.name
    more = "" if summary.declared_sources == summary.sources else "+"
    chunks = (
        f"{summary.delivered}"
        if summary.declared is None
        else f"{summary.delivered} of {summary.declared}{more}"
    )
    closed = f"{summary.ended_sources} of {summary.sources}"
    return (
        name, summary.run.pipeline, summary.run.state.value, chunks, closed, str(summary.results),
        clock(summary.begun_at),
    )  # fmt: skip


def _by_stage(facts: RunFacts, found: Sequence[StageStatus]) -> Iterator[str]:
    """A table: chunks of the sources, and messages between stages.

    If a source has event time, the last column is its watermark.
    """
    yield from _headed(facts.run)
    rows: list[tuple[str, ...]] = [("", "expected", "received", "processed", "released", "done")]
    for source in facts.sources:
        expected = "?" if source.declared is None else str(source.declared)
        ended = "yes" if source.ended_at else "no"
        rows.append((f"source {source.name}", expected, str(source.delivered), "-", "-", ended))
    rows += [_stage_row(stage) for stage in found]
    times = [*(source.watermark for source in facts.sources), *(None for _ in found)]
    yield from (f"  {line}" for line in aligned(with_times(rows, "up to", times)))
    if not found:
        yield "  the stages of a closed run are not retained"


def _stage_row(stage: StageStatus) -> tuple[str, ...]:
    expected = f"{stage.expected}" if stage.is_all_declared else f"{stage.expected}+"
    released = f"{stage.released} of {stage.release_points}" if stage.release_points else "-"
    done = f"{stage.done} of {stage.tasks}"
    return (
        f"stage {stage.stage}",
        expected,
        str(stage.received),
        str(stage.processed),
        released,
        done,
    )


def _headed(run: RunInfo) -> Iterator[str]:
    yield f"run {run.name!r} of {run.pipeline} is {run.state.value}"
    if run.cause:
        yield f"  {run.cause}"


def _explained(facts: RunFacts) -> Iterator[str]:
    from tidegate.runtime.monitor.diagnosis import reasons

    yield from _headed(facts.run)
    found = reasons(facts)
    if found:
        yield "  it waits because"
        yield from (f"    {reason.render(facts.now)}" for reason in found)
    yield "  sources"
    for source in facts.sources:
        expected = "?" if source.declared is None else str(source.declared)
        state = "closed" if source.ended_at else "open"
        yield f"    {source.name:<24} {source.delivered:>6} of {expected} chunks, {state}"
    if facts.channels:
        yield "  tasks: expected, received, processed"
    for task in dict.fromkeys(channel.to_task for channel in facts.channels):
        yield f"    {task:<24} {_progress(facts, task)}"


def _progress(facts: RunFacts, task: str) -> str:
    channels = [channel for channel in facts.channels if channel.to_task == task]
    declared = [channel.declared for channel in channels]
    known = sum(number for number in declared if number is not None)
    expected = f"{known}" if None not in declared else f"{known}+"
    received = sum(channel.messages for channel in channels)
    processed = sum(min(channel.cursor, channel.messages) for channel in channels)
    done = "  done" if all(channel.is_passed for channel in channels) else ""
    released = "  released" if task in facts.released else ""
    return f"{expected:>6} {received:>6} {processed:>6}{released}{done}"
