"""The plan of a run, made again from the declaration of its pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.loader import find_pipeline
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
        help="Where the run's pipeline is declared, if it is not registered under its name.",
        metavar="package.module:attribute",
        show_default=False,
    ),
]
Shards = Annotated[
    int | None,
    typer.Option(min=1, help="The shards that it is served with, if others were given there.",
                 show_default=False),
]  # fmt: skip


def plan_of_run(
    database: Database, run: RunInfo, declared: str | None, shards: int | None
) -> PhysicalPlan:
    """The plan that a run was begun with; raises `OtherPlan` if the declaration leads elsewhere."""
    from tidegate.store import plan_of

    plan = declared_plan(database, run, declared, shards)
    if plan_hash(plan) != database.transact(lambda connection: plan_of(connection, run)):
        raise OtherPlan(run.pipeline, plan_hash(plan), run.name)
    return plan


def declared_plan(
    database: Database, run: RunInfo, declared: str | None, shards: int | None
) -> PhysicalPlan:
    """The plan that the declaration of a run's pipeline leads to, be it another than the run's.

    Spark is asked only where the plan is another: it may be only for types that the declaration
    does not tell. Raises `OtherPlan` if the declaration is of another pipeline.
    """
    from tidegate.store import plan_of

    pipeline = _found(run, declared)
    wanted = database.transact(lambda connection: plan_of(connection, run))
    plan = physical_plan(pipeline, shards=shards)
    if pipeline.name != run.pipeline:
        other = f"what is declared there is {pipeline.name!r}"
        raise OtherPlan(run.pipeline, plan_hash(plan), run.name, (), (other,))
    if plan_hash(plan) != wanted:
        from tidegate.spark.analyze.analyze import check

        plan = check(pipeline, shards=shards).plan
    return plan


def _found(run: RunInfo, declared: str | None) -> Pipeline:
    try:
        return find_pipeline(declared or run.pipeline)
    except UnknownPipeline as unknown:
        if declared is not None:
            raise
        where = "say by --declared package.module:attribute where it is declared"
        raise UnknownPipeline(run.pipeline, f"{unknown.reason}; {where}", unknown.known) from None
