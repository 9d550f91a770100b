"""`tidegate explain`: what a pipeline would do, without doing it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.failing import told_errors
from tidegate.cli.finding import find_pipeline
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
    from tidegate.spark.analyze import Checked

    Plan = LogicalPlan | PhysicalPlan
    Schemas = Mapping[str, Sequence[tuple[str, str]]]


NOT_CHECKED = "Columns and types are not checked here: --analyze-schema asks Spark about them."


def explain(
    pipeline: Annotated[
        str,
        typer.Argument(metavar="PIPELINE", help="A registered name, or package.module:attribute."),
    ],
    logical: Annotated[
        bool,
        typer.Option("--logical/--physical", help="The declaration, or the plan that runs."),
    ] = False,
    shards: Annotated[
        int | None, typer.Option(min=1, help="Plan for this many shards.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    analyze_schema: Annotated[
        bool,
        typer.Option("--analyze-schema", help="Let Spark check all columns and types as well."),
    ] = False,
) -> None:
    """Show the plan of a pipeline: stages, shards, exchanges, barriers. Nothing runs."""
    with told_errors(as_json=as_json):
        found = find_pipeline(pipeline)
        planned = logical_plan if logical else physical_plan
        plan: Plan = planned(found, shards=shards)
        schemas: Schemas = {}
        if analyze_schema:
            checked = _checked(found)
            schemas, plan = checked.sinks, planned(found, shards=shards, floating=checked.floating)
        typer.echo(_json(plan, schemas) if as_json else _text(plan, schemas))


def _checked(pipeline: Pipeline) -> Checked:
    # Loading Spark takes a second, which explaining alone need not pay.
    from tidegate.spark.analyze import check

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
