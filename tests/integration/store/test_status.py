"""How far a run has come can be told from what is stored: sources, channels, owners, releases."""

from __future__ import annotations

import psycopg
import pytest

from tidegate.store import (
    ChannelName,
    ChannelStatus,
    Chunk,
    RunInfo,
    RunState,
    SourceStatus,
    acquire,
    begin_run,
    close_run,
    end_source,
    overview,
    record_chunk,
    run_facts,
    task_topic,
)
from tidegate.store.runs.releases import release
from tidegate.store.runs.status import record_release_points, stages

INTO, OUT = ChannelName("head", "scan/0"), ChannelName("scan/0", "sum/0")


@pytest.fixture
def run(session: psycopg.Connection) -> RunInfo:
    return begin_run(session, "sales", "march", [INTO, OUT], sources=["orders"], deadline=60)


def deliver(session: psycopg.Connection, run: RunInfo, number: int) -> None:
    with session.transaction():
        record_chunk(session, run, Chunk("orders", number, "a", 1, 1, (), 0), [INTO], [INTO])


def end(session: psycopg.Connection, run: RunInfo, chunks: int | None) -> None:
    with session.transaction():
        end_source(session, run, "orders", chunks, [INTO])


def source(session: psycopg.Connection, run: RunInfo) -> SourceStatus:
    (found,) = run_facts(session, run).sources
    return found


def channel(session: psycopg.Connection, run: RunInfo, to_task: str) -> ChannelStatus:
    return next(each for each in run_facts(session, run).channels if each.to_task == to_task)


def test_a_source_tells_which_chunks_it_owes(session: psycopg.Connection, run: RunInfo) -> None:
    deliver(session, run, 2)
    undeclared = source(session, run)
    assert (undeclared.delivered, undeclared.declared, undeclared.missing) == (1, None, (1,))
    end(session, run, 4)
    declared = source(session, run)
    assert (declared.declared, declared.missing) == (4, (1, 3, 4))
    assert declared.declared_at is not None
    assert declared.ended_at is None


def test_millions_of_missing_chunks_are_named_by_the_first_few(
    session: psycopg.Connection, run: RunInfo
) -> None:
    end(session, run, 10**12)
    assert source(session, run).missing == tuple(range(1, 21))


def test_a_complete_source_owes_nothing(session: psycopg.Connection, run: RunInfo) -> None:
    deliver(session, run, 1)
    end(session, run, None)
    complete = source(session, run)
    assert complete.ended_at is not None
    assert complete.missing == ()


def test_a_channel_tells_what_waits_on_it_and_since_when(
    session: psycopg.Connection, run: RunInfo
) -> None:
    assert channel(session, run, "scan/0").waiting_since is None
    deliver(session, run, 1)
    end(session, run, None)
    found = channel(session, run, "scan/0")
    assert (found.sent, found.declared, found.cursor) == (2, 1, 0)
    assert found.waiting_since is not None
    assert not found.is_passed


def test_a_channel_whose_end_was_taken_is_passed(session: psycopg.Connection, run: RunInfo) -> None:
    end(session, run, 0)
    session.execute("UPDATE tidegate.cursor SET seq = 1")
    assert channel(session, run, "scan/0").is_passed


def test_who_runs_the_tasks_and_where_the_run_is_released_is_told(
    session: psycopg.Connection, run: RunInfo
) -> None:
    acquire(session, "task", task_topic("sales", "scan/0"), "ann", 60)
    release(session, run, "sum/0")
    facts = run_facts(session, run)
    assert facts.released == {"sum/0"}
    assert facts.owners["scan/0"].name == "ann"
    assert 0 < facts.owners["scan/0"].expires_in <= 60
    assert "sum/0" not in facts.owners


def test_gates_are_those_of_the_plan_that_the_run_was_begun_with(
    session: psycopg.Connection, run: RunInfo
) -> None:
    planned = begin_run(session, "sales", "april", [OUT], plan="abc")
    record_release_points(session, "abc", ["sum/0", "sum/1"])
    record_release_points(session, "abc", ["sum/0", "sum/1"])
    record_release_points(session, "abcd", ["join"])
    assert run_facts(session, planned).release_points == {"sum/0", "sum/1"}
    assert run_facts(session, run).release_points == set()


def test_who_is_the_monitor_is_told(session: psycopg.Connection, run: RunInfo) -> None:
    assert run_facts(session, run).monitor is None
    acquire(session, "monitor", "sales", "ann", 60)
    monitor = run_facts(session, run).monitor
    assert monitor is not None
    assert monitor.name == "ann"


def test_the_shards_of_a_stage_are_told_together_in_the_order_of_the_data(
    session: psycopg.Connection,
) -> None:
    channels = [ChannelName("b/0", "a/0"), ChannelName("b/1", "a/1"), ChannelName("head", "b/0")]
    run = begin_run(session, "sales", "may", [*channels, ChannelName("head", "b/1")])
    session.execute("UPDATE tidegate.channel SET sent = 3, declared = 2 WHERE to_task = 'b/0'")
    session.execute("UPDATE tidegate.channel SET sent = 4 WHERE to_task = 'b/1'")
    session.execute(
        "UPDATE tidegate.cursor SET seq = 3 FROM tidegate.channel"
        " WHERE channel.id = channel_id AND to_task LIKE 'b/%'"
    )
    first, second = stages(run_facts(session, run))
    assert (first.stage, second.stage) == ("b", "a")
    assert (first.expected, first.is_all_declared) == (2, False)
    assert (first.received, first.processed) == (6, 5)
    assert (first.tasks, first.done) == (2, 1)


def test_the_overview_has_the_youngest_run_first(session: psycopg.Connection, run: RunInfo) -> None:
    deliver(session, run, 1)
    close_run(session, run, RunState.FAILED, "disk full")
    other = begin_run(session, "stores", "april", [])
    first, second = overview(session)
    assert (first.run, second.run.id) == (other, run.id)
    assert (second.run.cause, second.delivered, second.sources) == ("disk full", 1, 1)
    assert second.deadline_at is not None
    assert [each.run for each in overview(session, "stores")] == [other]
