"""The plan of a run, built from the declaration of its pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.arguments.loader import find_pipeline
from tidegate.errors import OtherPlan, UnknownPipeline
from tidegate.plan import physical_plan, plan_hash

if TYPE_CHECKING:
    from tidegate.pipeline import Pipeline
    from tidegate.plan import PhysicalPlan
    from tidegate.store import Database, RunInfo

DeclaredAs = Annotated[
    str | None,
    typer.Option(
        "--declared",
        help="The declaration of the run's pipeline, if it is not registered by name.",
        metavar="package.module:attribute",
        show_default=False,
    ),
]
Shards = Annotated[
    int | None,
    typer.Option(min=1, help="The number of shards that the pipeline is served with.",
                 show_default=False),
]  # fmt: skip


def plan_of_run(
    database: Database, run: RunInfo, declared: str | None, shards: int | None
) -> PhysicalPlan:
    """The plan that a run was begun with; raises `OtherPlan` if the declaration gives another."""
    from tidegate.store import plan_of

    plan = declared_plan(database, run, declared, shards)
    if plan_hash(plan) != database.transact(lambda connection: plan_of(connection, run)):
        raise OtherPlan(run.pipeline, plan_hash(plan), run.name)
    return plan


def declared_plan(
    database: Database, run: RunInfo, declared: str | None, shards: int | None
) -> PhysicalPlan:
    """The plan of the declaration, which may differ from the plan of the run.

    Spark is started only if the plans differ: the reason may be types that only Spark's analysis
    finds. Raises `OtherPlan` if the declaration is of another pipeline.
    """
    from tidegate.store import plan_of

    pipeline = declaration_of(run, declared)
    recorded = database.transact(lambda connection: plan_of(connection, run))
    plan = physical_plan(pipeline, shards=shards)
    if pipeline.name != run.pipeline:
        other = f"the declaration is of pipeline {pipeline.name!r}"
        raise OtherPlan(run.pipeline, plan_hash(plan), run.name, (), (other,))
    if plan_hash(plan) != recorded:
        from tidegate.spark.analyze.analyze import check

        plan = check(pipeline, shards=shards).plan
    return plan


def declaration_of(run: RunInfo, declared: str | None) -> Pipeline:
    """The declaration of a run's pipeline; raises `UnknownPipeline`."""
    try:
        return find_pipeline(declared or run.pipeline)
    except UnknownPipeline as unknown:
        if declared is not None:
            raise
        where = "name its declaration with --declared package.module:attribute"
        raise UnknownPipeline(run.pipeline, f"{unknown.reason}; {where}", unknown.known) from None
