"""What a plan consists of is known for as long as a run or a cut names it."""

from __future__ import annotations

import psycopg
import pytest

from tidegate.checkpoint import CheckpointState
from tidegate.dataflow import CheckpointId
from tidegate.store import ChannelName, RunInfo, begin_run
from tidegate.store.checkpoints import checkpoints as checkpoint_store
from tidegate.store.runs import plans

CHANNELS = [ChannelName("head", "scan"), ChannelName("scan", "sum")]


@pytest.fixture
def run(session: psycopg.Connection) -> RunInfo:
    return begin_run(session, "sales", "march", CHANNELS, sources=["orders"], plan="first")


def test_a_plan_that_was_recorded_is_known(session: psycopg.Connection) -> None:
    assert plans.recorded(session, "first") is None
    for _ in range(2):
        plans.record(session, "first", "[1]")
    assert plans.recorded(session, "first") == "[1]"


def test_a_plan_beyond_all_bounds_is_not_recorded(session: psycopg.Connection) -> None:
    plans.record(session, "first", " " * (plans.MOST + 1))
    assert plans.recorded(session, "first") is None


def test_a_plan_that_no_run_and_no_cut_names_is_forgotten(
    session: psycopg.Connection, run: RunInfo
) -> None:
    for plan in ("first", "of a cut", "other"):
        plans.record(session, plan, "[]")
    assert checkpoint_store.trigger(session, run, CheckpointId.new()) == 1
    session.execute(
        'UPDATE tidegate.checkpoint SET state = %s, manifest = \'{"plan": "of a cut"}\'',
        [CheckpointState.COMMITTED.value],
    )
    assert plans.remove_unused(session, 3600) == 0
    assert plans.remove_unused(session, 0) == 1
    assert [plans.recorded(session, it) for it in ("first", "of a cut", "other")] == [
        "[]",
        "[]",
        None,
    ]
    session.execute("DELETE FROM tidegate.run")
    assert plans.remove_unused(session, 0) == 2


def test_tasks_that_acknowledged_a_cut_had_not_ended_before_it(
    session: psycopg.Connection, run: RunInfo
) -> None:
    assert checkpoint_store.trigger(session, run, CheckpointId.new()) == 1
    checkpoint_store.acknowledge(session, [checkpoint_store.Acknowledgement(run.id, 1, "scan")])
    assert plans.ended_before(session, run, 1, ["scan", "sum"]) == ["sum"]
