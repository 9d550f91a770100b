"""`tidegate explain`: prints the plan of a pipeline."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.arguments.deployments import AsJson, find_run, open_existing
from tidegate.cli.arguments.loader import find_pipeline
from tidegate.cli.arguments.options import DatabaseUrl
from tidegate.cli.arguments.plan_loading import plan_of_run
from tidegate.cli.output.alignment_report import NO_CHECKPOINTS, barrier_stats
from tidegate.cli.output.error_output import reported_errors
from tidegate.cli.output.tables import json_text
from tidegate.errors import NothingToExplain
from tidegate.plan import (
    LogicalPlan,
    explain_logical,
    explain_physical,
    logical_json,
    logical_plan,
    physical_json,
    physical_plan,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidegate.pipeline import Pipeline
    from tidegate.plan import PhysicalPlan
    from tidegate.spark.analyze.analyze import Checked
    from tidegate.store import Database

    Plan = LogicalPlan | PhysicalPlan
    Schemas = Mapping[str, Sequence[tuple[str, str]]]


NOT_CHECKED = "Columns and types are not checked: --analyze-schema checks them with Spark."


def explain(  # noqa: PLR0913, PLR0917  every argument is an option of the command
    pipeline: Annotated[
        str | None,
        typer.Argument(
            metavar="PIPELINE",
            help="A registered name, or package.module:attribute; with --analyze, the declaration"
            " of the run's pipeline.",
            show_default=False,
        ),
    ] = None,
    logical: Annotated[
        bool,
        typer.Option("--logical/--physical", help="Print the logical or the physical plan."),
    ] = False,
    shards: Annotated[
        int | None, typer.Option(min=1, help="Plan for this many shards.", show_default=False)
    ] = None,
    as_json: AsJson = False,
    analyze_schema: Annotated[
        bool,
        typer.Option("--analyze-schema", help="Check all columns and types with Spark."),
    ] = False,
    analyze: Annotated[
        str | None,
        typer.Option(
            help="Print for each barrier the last upstream at the checkpoints of this run, and the"
            " time waited.",
            metavar="RUN",
            show_default=False,
        ),
    ] = None,
    deployment: Annotated[
        Path | None,
        typer.Option(
            help="With --analyze: the folder of the deployment.", metavar="DIR", show_default=False
        ),
    ] = None,
    database: DatabaseUrl = None,
) -> None:
    """Print the plan of a pipeline: stages, shards, exchanges, barriers; nothing is run."""
    with reported_errors(as_json=as_json):
        if analyze is not None:
            if deployment is None:
                raise NothingToExplain("the folder of the run's deployment, with --deployment DIR")
            with open_existing(deployment, database) as opened:
                typer.echo(_analyzed(opened, analyze, pipeline, shards, as_json=as_json))
            return
        if pipeline is None:
            raise NothingToExplain("a PIPELINE, or a run with --analyze RUN")
        found = find_pipeline(pipeline)
        planned = logical_plan if logical else physical_plan
        plan: Plan = planned(found, shards=shards)
        schemas: Schemas = {}
        if analyze_schema:
            checked = _checked(found)
            schemas, plan = checked.sinks, planned(found, shards=shards, floating=checked.floating)
        typer.echo(_json(plan, schemas) if as_json else _text(plan, schemas))


def _analyzed(
    database: Database, name: str, declared: str | None, shards: int | None, *, as_json: bool
) -> str:
    from tidegate.store.checkpoints.alignment_stats import alignments_of

    run = find_run(database, name, None)
    plan = plan_of_run(database, run, declared, shards)
    stats = barrier_stats(
        plan, database.transact(lambda connection: alignments_of(connection, run))
    )
    if as_json:
        barriers = {id: asdict(each) for id, each in stats.items()}
        return json_text({**physical_json(plan), "run": name, "barriers": barriers})
    shown = explain_physical(plan, {id: each.render() for id, each in stats.items()})
    return shown if stats else f"{shown}\n\n{NO_CHECKPOINTS}"


def _checked(pipeline: Pipeline) -> Checked:
    # Imported here: loading Spark takes a second.
    from tidegate.spark.analyze.analyze import check

    return check(pipeline)


def _json(plan: Plan, schemas: Schemas) -> str:
    shown = logical_json(plan) if isinstance(plan, LogicalPlan) else physical_json(plan)
    if schemas:
        shown["schemas"] = {
            sink: [{"name": name, "type": kind} for name, kind in columns]
            for sink, columns in schemas.items()
        }
    return json.dumps(shown, ensure_ascii=False, indent=2)


def _text(plan: Plan, schemas: Schemas) -> str:
    shown = explain_logical(plan) if isinstance(plan, LogicalPlan) else explain_physical(plan)
    lines = [shown] if schemas else [shown, "", NOT_CHECKED]
    for sink, columns in schemas.items():
        lines += ["", f"Schema of {sink}", *(f"    {name}  {kind}" for name, kind in columns)]
    return "\n".join(lines)
