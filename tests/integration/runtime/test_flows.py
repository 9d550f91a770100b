"""A step of a flow submits a run of a pipeline, and goes on when the run is released."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.integration.runtime.shop import BOUND, ask, rows, shop
from tests.waiting import wait_until
from tidegate.dataflow import Batch
from tidegate.errors import FlowFailed
from tidegate.flows import Backoff, Context, Flow, FlowState, Released
from tidegate.flows.client import start_flow
from tidegate.flows.worker.pipeline_submit import served_task_graph
from tidegate.flows.worker.worker import FlowWorker
from tidegate.plan import physical_plan, plan_hash
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.ingestion.run_service import RunService
from tidegate.runtime.service import PipelineService
from tidegate.spark import Session
from tidegate.store import (
    Connection,
    Database,
    Notifications,
    RunInfo,
    RunState,
    SinkPublication,
    StepCommit,
    acquire,
    begin_run,
    close_run,
    commit_step,
    open_runs,
)
from tidegate.store.flows.events import flow_waits
from tidegate.store.flows.runs import cancel_flow, flow_run, retry_flow
from tidegate.store.runs import plans

HOURS = 3600.0
"""A lease so long that nobody sweeps by itself during a test."""
Start = Callable[..., FlowWorker]


@pytest.fixture
def notifications(place: Deployment) -> Iterator[Notifications]:
    with Notifications(place.database) as found:
        assert found.wait_listening(30)
        yield found


@pytest.fixture
def work(place: Deployment, notifications: Notifications) -> Iterator[Start]:
    """Starts workers of flows that know where files are, and closes them with the test."""
    with ExitStack() as workers:

        def start(*flows: Flow, seconds: float = 6.0, look_every: float = 0.25) -> FlowWorker:
            how = (place.database, flows, notifications, 2, seconds, "", look_every)
            return workers.enter_context(FlowWorker(*how, root=place.root))

        yield start


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return sold(tmp_path / "given", 7)


def sold(folder: Path, quantity: int) -> str:
    """A folder of chunks: tea was sold twice, so often each time."""
    for source, text in {
        "items": "item_id,item_name\n1,tea\n",
        "sales": f"item_id,quantity\n1,{quantity}\n1,{quantity}\n",
    }.items():
        (folder / source).mkdir(parents=True, exist_ok=True)
        (folder / source / "1.csv").write_text(text)
    return str(folder)


def selling(name: str = "nightly", timeout: float | None = None, retries: int = 0) -> Flow:
    """A flow that has a shop's sales counted."""
    flow = Flow(name)

    @flow.step(retries=retries, backoff=Backoff(first=0.01))
    def count(context: Context, folder: str) -> Released:
        return context.run_pipeline(shop(), folder, timeout=timeout)

    return flow


def runs(database: Database) -> list[RunInfo]:
    return database.transact(lambda c: open_runs(c, "shop"))


def awaited(database: Database, number: int = 1) -> RunInfo:
    """The last run that was begun, when a step waits for it and so many were begun in all."""
    suspended = "SELECT count(*) FROM tidegate.flow_task WHERE state = 'suspended'"
    begun = "SELECT count(*) FROM tidegate.run"
    wait_until(
        lambda: ask(database, begun) == [(number,)] and ask(database, suspended) == [(1,)], BOUND
    )
    return runs(database)[-1]


def state_of(database: Database, run: RunInfo) -> tuple[object, ...]:
    return ask(database, "SELECT state, cause FROM tidegate.run WHERE id = %s", run.id)[0]


def close(database: Database, run: RunInfo, state: RunState, cause: str | None = None) -> None:
    database.transact(lambda c: close_run(c, run, state, cause))


def publish(database: Database, run: RunInfo, published: Sequence[SinkPublication]) -> None:
    lease = database.transact(lambda c: acquire(c, "task", "shop/collect", "ann", HOURS))
    assert lease is not None
    step = StepCommit(lease, published=tuple(published), ended_runs=(run.id,))
    database.transact(lambda c: commit_step(c, step))


# ── with Spark ──


@pytest.fixture
def nightly(common: PipelineService, common_place: Deployment) -> Iterator[tuple[Flow, Database]]:
    flow, database = selling(), common_place.database
    with FlowWorker(
        database, [flow], common.notifications, 1, HOURS, look_every=600.0, root=common_place.root
    ):
        yield flow, database


def test_a_step_is_given_what_its_run_released(
    nightly: tuple[Flow, Database],
    common: PipelineService,
    common_place: Deployment,
    spark: Session,
    folder: str,
) -> None:
    flow, database = nightly
    run = start_flow(database, flow, folder)
    run.wait(BOUND, common.notifications)
    released = run.result("count")
    assert released.run == f"flow:nightly/{run.id}/count"
    assert released.rows == {"best": 1, "bulk": 0}
    assert [tuple(it) for it in spark.read.parquet(*released.files["best"]).collect()] == [
        ("tea", 14_000)
    ]
    assert rows(spark, common_place, common.server.results(released.run)["best"]) == [
        ("tea", 14_000)
    ]


def test_a_run_that_fails_fails_its_step_with_the_first_cause(
    nightly: tuple[Flow, Database], common: PipelineService, tmp_path: Path
) -> None:
    flow, database = nightly
    run = start_flow(database, flow, sold(tmp_path / "given", 2_147_483_647))
    with pytest.raises(FlowFailed, match=r"RunFailed: run 'flow:nightly.*overflow"):
        run.wait(BOUND, common.notifications)


# ── what a step does, whoever works on its run ──


def test_a_step_that_waits_holds_nothing_and_is_woken_by_the_release_alone(
    place: Deployment, work: Start, notifications: Notifications, folder: str
) -> None:
    flow = selling()
    worker = work(flow, seconds=HOURS, look_every=600.0)
    run = start_flow(place.database, flow, folder)
    found = awaited(place.database)
    wait_until(lambda: worker.in_flight_count == 0, BOUND)
    (waiting,) = place.database.transact(lambda c: flow_waits(c, run.id))
    assert (waiting.step, waiting.standing, waiting.pipeline_run) == ("count", None, found.name)
    batch = Batch(("batches/best.parquet",), 3, 10)
    publish(place.database, found, [SinkPublication(found.id, "best", [batch], 3)])
    run.wait(BOUND, notifications)
    released = run.result("count")
    assert released == Released(
        "shop", found.name, {"best": 3}, {"best": [f"{place.root}/batches/best.parquet"]}
    )


def test_a_step_goes_on_in_another_worker_although_its_data_is_gone(
    place: Deployment, work: Start, notifications: Notifications, folder: str
) -> None:
    flow = selling()
    first = work(flow)
    run = start_flow(place.database, flow, folder)
    found = awaited(place.database)
    first.close()
    (Path(folder) / "sales" / "1.csv").unlink()
    publish(place.database, found, [])
    work(flow)
    run.wait(BOUND, notifications)
    assert run.result("count").run == found.name


def test_a_run_that_is_cancelled_fails_its_step(
    place: Deployment, work: Start, notifications: Notifications, folder: str
) -> None:
    flow = selling()
    work(flow)
    run = start_flow(place.database, flow, folder)
    close(place.database, awaited(place.database), RunState.CANCELLED)
    with pytest.raises(FlowFailed, match="RunCancelled"):
        run.wait(BOUND, notifications)


def test_a_flow_that_is_cancelled_cancels_its_run(
    place: Deployment, work: Start, folder: str
) -> None:
    flow = selling()
    work(flow)
    run = start_flow(place.database, flow, folder)
    found = awaited(place.database)
    state = place.database.transact(lambda c: cancel_flow(c, run.id, "enough"))
    assert state is FlowState.CANCELED
    wait_until(lambda: runs(place.database) == [], BOUND)
    waiting = f"step count of run {run.id} of flow nightly"
    assert state_of(place.database, found) == (
        "cancelled",
        f"{waiting}, which is canceled, waits for it no more: enough",
    )


def test_a_wait_that_reaches_its_bound_names_the_run_and_that_nobody_serves_it(
    place: Deployment, work: Start, notifications: Notifications, folder: str
) -> None:
    flow = selling(timeout=0.2, retries=3)
    work(flow, seconds=1.0)
    run = start_flow(place.database, flow, folder)
    with pytest.raises(FlowFailed) as failed:
        run.wait(BOUND, notifications)
    told = failed.value.cause
    assert (
        f"for run 'flow:nightly/{run.id}/count' of pipeline 'shop', which is not released" in told
    )
    assert "no process serves it: start `tidegate up`" in told
    assert "has not processed" in told
    wait_until(lambda: runs(place.database) == [], BOUND)


def test_a_step_that_is_tried_again_begins_another_run(
    place: Deployment, work: Start, notifications: Notifications, folder: str
) -> None:
    flow = selling(retries=1)
    work(flow)
    run = start_flow(place.database, flow, folder)
    first = awaited(place.database)
    close(place.database, first, RunState.FAILED, "a disk was full")
    second = awaited(place.database, number=2)
    assert (second.name, second.incarnation) == (first.name, 2)
    close(place.database, second, RunState.FAILED, "a disk was full again")
    with pytest.raises(FlowFailed, match=r"a disk was full$"):
        run.wait(BOUND, notifications)


def test_a_flow_that_is_tried_again_begins_another_run(
    place: Deployment, work: Start, notifications: Notifications, folder: str
) -> None:
    flow = selling()
    work(flow)
    run = start_flow(place.database, flow, folder)
    close(place.database, awaited(place.database), RunState.FAILED, "a disk was full")
    with pytest.raises(FlowFailed):
        run.wait(BOUND, notifications)
    place.database.transact(lambda c: retry_flow(c, run.id))
    publish(place.database, awaited(place.database, number=2), [])
    run.wait(BOUND, notifications)


@pytest.mark.parametrize("state", [RunState.CANCELLED, RunState.FAILED])
def test_a_run_that_is_restored_is_waited_for_as_the_one_that_goes_on(
    place: Deployment, work: Start, notifications: Notifications, folder: str, state: RunState
) -> None:
    flow = selling()
    work(flow, seconds=HOURS, look_every=600.0)
    run = start_flow(place.database, flow, folder)
    first = awaited(place.database)
    second = place.database.transact(lambda c: restored(c, first, state))
    wait_until(lambda: waits_for(place.database) == [(second.id,)], BOUND)
    publish(place.database, second, [])
    run.wait(BOUND, notifications)


def restored(connection: Connection, run: RunInfo, state: RunState) -> RunInfo:
    """A run that goes on for another, with everything delivered."""
    close_run(connection, run, state)
    later = begin_run(connection, run.pipeline, run.name, [])
    connection.execute(
        "UPDATE tidegate.run SET lineage = ARRAY[%s::bigint] WHERE id = %s", (run.id, later.id)
    )
    return later


def waits_for(database: Database) -> list[tuple[object, ...]]:
    return ask(
        database,
        "SELECT pipeline_run_id FROM tidegate.flow_pipeline NATURAL JOIN tidegate.flow_task"
        " WHERE state = 'suspended'",
    )


def test_a_chunk_that_is_refused_fails_the_step_and_its_run_is_cancelled(
    place: Deployment, work: Start, notifications: Notifications, folder: str
) -> None:
    (Path(folder) / "sales" / "2.csv").write_text("item_id,quantity\n1,many\n")
    flow = selling()
    work(flow)
    with pytest.raises(FlowFailed, match=r"BadValue.*many"):
        start_flow(place.database, flow, folder).wait(BOUND, notifications)
    wait_until(lambda: runs(place.database) == [], BOUND)


def test_runs_of_one_pipeline_are_told_apart_by_name(
    place: Deployment, work: Start, notifications: Notifications, folder: str
) -> None:
    flow = Flow("regions")

    @flow.step()
    def both(context: Context, folder: str) -> list[str]:
        names = ("eu", "us")
        return [context.run_pipeline(shop(), folder, name=it).run for it in names]

    work(flow)
    run = start_flow(place.database, flow, folder)
    publish(place.database, awaited(place.database), [])
    publish(place.database, awaited(place.database, number=2), [])
    run.wait(BOUND, notifications)
    found = run.result("both")
    assert found == [f"flow:regions/{run.id}/both/eu", f"flow:regions/{run.id}/both/us"]


def test_two_runs_under_one_name_are_refused(
    place: Deployment, work: Start, notifications: Notifications, folder: str
) -> None:
    flow = Flow("twice")

    @flow.step(retries=3)
    def both(context: Context, folder: str) -> list[str]:
        return [context.run_pipeline(shop(), folder).run for _ in range(2)]

    work(flow)
    run = start_flow(place.database, flow, folder)
    publish(place.database, awaited(place.database), [])
    with pytest.raises(FlowFailed, match="PipelineRunTwice"):
        run.wait(BOUND, notifications)


def test_items_of_a_map_step_have_runs_of_their_own(
    place: Deployment, work: Start, notifications: Notifications, folder: str
) -> None:
    flow = Flow("each")

    @flow.map_step()
    def count(context: Context, quantity: int) -> str:
        files = {it: [Path(folder) / it / "1.csv"] for it in ("items", "sales")}
        return context.run_pipeline(shop(), files).run

    work(flow)
    run = start_flow(place.database, flow, [7, 8, 9])
    wait_until(lambda: len(runs(place.database)) == 3, BOUND)
    for found in runs(place.database):
        publish(place.database, found, [])
    run.wait(BOUND, notifications)
    names = [f"flow:each/{run.id}/count[{number}]" for number in range(3)]
    assert list(run.result("count")) == names


def test_files_of_every_source_have_to_be_named(
    place: Deployment, work: Start, notifications: Notifications
) -> None:
    flow = Flow("forgetful")

    @flow.step()
    def count(context: Context) -> Released:
        return context.run_pipeline(shop(), {"items": []})

    work(flow)
    with pytest.raises(FlowFailed, match="no chunks of sales"):
        start_flow(place.database, flow).wait(BOUND, notifications)
    assert runs(place.database) == []


def test_a_worker_that_does_not_know_where_files_are_says_so(
    place: Deployment, notifications: Notifications, folder: str
) -> None:
    flow = selling()
    with (
        FlowWorker(place.database, [flow], notifications),
        pytest.raises(FlowFailed, match=r"give the worker root="),
    ):
        start_flow(place.database, flow, folder).wait(BOUND, notifications)


# ── plans ──


def test_a_run_is_begun_on_the_shards_that_are_served(place: Deployment) -> None:
    plan = physical_plan(shop(), shards=3)
    served = plans.ServedPlan(plan_hash(plan), 3)
    place.database.transact(lambda c: plans.record_served_plan(c, "shop", served))
    assert plan_hash(served_task_graph(place.database, shop()).plan) == served.plan


def test_a_pipeline_that_is_served_otherwise_is_refused(
    place: Deployment, work: Start, notifications: Notifications, folder: str
) -> None:
    place.database.transact(
        lambda c: plans.record_served_plan(c, "shop", plans.ServedPlan("other", 2))
    )
    flow = selling()
    work(flow)
    with pytest.raises(FlowFailed, match="is served with plan other"):
        start_flow(place.database, flow, folder).wait(BOUND, notifications)


def test_what_is_closed_before_its_step_is_put_aside_is_not_missed(
    place: Deployment, counter: RunService, work: Start, notifications: Notifications, folder: str
) -> None:
    """The run is closed in the middle of the attempt that submits it."""
    flow = Flow("late")

    @flow.step()
    def count(context: Context, folder: str) -> Released:
        try:
            return context.run_pipeline(shop(), folder)
        finally:
            for found in runs(place.database):
                publish(place.database, found, [])

    work(flow, seconds=HOURS, look_every=600.0)
    run = start_flow(place.database, flow, folder)
    run.wait(BOUND, notifications)
    assert place.database.transact(lambda c: flow_run(c, run.id)).state is FlowState.COMPLETED
