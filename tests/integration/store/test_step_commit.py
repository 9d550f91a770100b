"""Steps publish, fail and end runs with what they move, and leave closed runs alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import psycopg
import pytest

from tidegate.dataflow import Batch, Event
from tidegate.errors import ChannelConflict, Fenced
from tidegate.store import (
    ChannelName,
    CursorAdvance,
    Database,
    Lease,
    OutgoingMessage,
    RunFailure,
    RunInfo,
    RunState,
    SinkPublication,
    StepCommit,
    acquire,
    begin_run,
    channels_of,
    close_run,
    closed_among,
    commit_step,
    fail_runs,
    find_run,
    message_id,
    publications,
    reclaim,
    results_of,
    run_topic,
    task_topic,
    unread,
)
from tidegate.store.runs.channels import append
from tidegate.store.runs.step_commit import CommitOutcome

INTO, OUT = ChannelName("head", "s1"), ChannelName("s1", "s2")


@pytest.fixture
def lease(session: psycopg.Connection) -> Lease:
    return own(session, "task", "sales/s1")


def own(session: psycopg.Connection, kind: str, key: str, seconds: float = 3600) -> Lease:
    lease = acquire(session, kind, key, "ann", seconds)
    assert lease is not None
    return lease


def begin(session: psycopg.Connection, name: str) -> RunInfo:
    run = begin_run(session, "sales", name, [INTO, OUT])
    with session.transaction():
        append(session, run, INTO, [(message_id(n), Event(n, run.key)) for n in range(3)])
    return run


def step_of(session: psycopg.Connection, lease: Lease, *runs: RunInfo) -> StepCommit:
    """The step that takes everything from these runs and sends one word for each."""
    channels = {
        run: {channel.name: channel for channel in channels_of(session, run, "s1")} for run in runs
    }
    return StepCommit(
        lease,
        tuple(CursorAdvance(channels[run][INTO].id, 0, 3) for run in runs),
        tuple(
            OutgoingMessage(channels[run][OUT].id, message_id("done"), Event("done", run.key))
            for run in runs
        ),
    )


def commit(session: psycopg.Connection, step: StepCommit) -> CommitOutcome:
    with session.transaction():
        return commit_step(session, step)


def sent(session: psycopg.Connection) -> list[str]:
    return [each.run.name for each in unread(session, "sales", "s2", {})]


def state_of(session: psycopg.Connection, run: RunInfo) -> tuple[RunState, str | None]:
    found = find_run(session, run.pipeline, run.name)
    assert found is not None
    return found.state, found.cause


def test_what_a_step_did_for_closed_runs_is_dropped_and_the_rest_is_not(
    session: psycopg.Connection, lease: Lease
) -> None:
    march, april = begin(session, "march"), begin(session, "april")
    step = step_of(session, lease, march, april)
    close_run(session, march, RunState.CANCELLED)
    assert commit(session, step) == CommitOutcome(is_new=True, closed=frozenset({march.id}))
    assert sent(session) == ["april"]
    assert not commit(session, step).is_new


def test_a_step_of_closed_runs_only_does_nothing(session: psycopg.Connection, lease: Lease) -> None:
    march = begin(session, "march")
    step = replace(step_of(session, lease, march), ended_runs=(march.id,))
    close_run(session, march, RunState.FAILED, "disk full")
    assert commit(session, step) == CommitOutcome(is_new=False, closed=frozenset({march.id}))
    assert state_of(session, march) == (RunState.FAILED, "disk full")


def test_runs_whose_channels_are_gone_are_heard_of_when_they_are_named(
    session: psycopg.Connection, lease: Lease
) -> None:
    march = begin(session, "march")
    step = replace(step_of(session, lease, march), runs=(march.id,))
    close_run(session, march, RunState.CANCELLED)
    reclaim(session, march)
    assert commit(session, step) == CommitOutcome(is_new=False, closed=frozenset({march.id}))
    assert closed_among(session, [march.id, 999]) == {march.id, 999}


def test_the_results_of_a_run_are_published_by_the_step_that_ends_it(
    session: psycopg.Connection, lease: Lease
) -> None:
    march = begin(session, "march")
    batches = [Batch(("a.parquet",), 7, 1)]
    results = (
        SinkPublication(march.id, "top", batches, 7),
        SinkPublication(march.id, "none", [], 0),
    )
    step = replace(step_of(session, lease, march), published=results, ended_runs=(march.id,))
    session.execute("LISTEN tidegate")
    assert commit(session, step).is_new
    assert commit(session, step) == CommitOutcome(is_new=False, closed=frozenset({march.id}))
    found = results_of(session, march)
    assert found["top"].batches == batches
    assert {sink: result.rows for sink, result in found.items()} == {"top": 7, "none": 0}
    assert publications(session) == {march.key: 1}
    assert state_of(session, march) == (RunState.ENDED, None)
    assert [each.payload for each in session.notifies(timeout=0.2)] == [run_topic("sales")]


def test_a_run_that_was_closed_publishes_nothing(session: psycopg.Connection, lease: Lease) -> None:
    march = begin(session, "march")
    close_run(session, march, RunState.CANCELLED)
    results = (SinkPublication(march.id, "top", [], 0),)
    commit(session, StepCommit(lease, published=results, ended_runs=(march.id,)))
    assert results_of(session, march) == {}


def test_a_step_fails_the_guilty_run_and_keeps_the_first_cause(
    session: psycopg.Connection, lease: Lease
) -> None:
    march, april = begin(session, "march"), begin(session, "april")
    failed = (RunFailure(march.id, "bad value"), RunFailure(march.id, "failed again"))
    session.execute("LISTEN tidegate")
    assert commit(session, replace(step_of(session, lease, april), failed=failed)).is_new
    assert state_of(session, march) == (RunState.FAILED, "bad value")
    assert state_of(session, april) == (RunState.OPEN, None)
    (heard,) = [each.payload for each in session.notifies(timeout=0.2)]
    assert set(heard.split("\n")) == {
        run_topic("sales"),
        task_topic("sales", "s1"),
        task_topic("sales", "s2"),
    }


def test_runs_may_fail_outside_of_any_step(session: psycopg.Connection) -> None:
    march = begin(session, "march")
    fail_runs(session, [RunFailure(march.id, "bad value")])
    fail_runs(session, [RunFailure(march.id, "later")])
    assert state_of(session, march) == (RunState.FAILED, "bad value")


def test_a_step_is_written_under_all_its_leases(session: psycopg.Connection, lease: Lease) -> None:
    worker = own(session, "worker", "w1", seconds=0)
    step = replace(step_of(session, lease, begin(session, "march")), also=(worker,))
    assert acquire(session, "worker", "w1", "the sweeper", 3600) is not None
    with pytest.raises(Fenced) as fenced:
        commit(session, step)
    assert (fenced.value.kind, fenced.value.holder) == ("worker", "the sweeper")
    assert sent(session) == []


def test_an_id_that_is_used_for_two_messages_is_a_conflict_and_loses_none(
    session: psycopg.Connection, lease: Lease
) -> None:
    march = begin(session, "march")
    step = step_of(session, lease, march)
    commit(session, replace(step, advances=()))
    with pytest.raises(ChannelConflict):
        commit(session, step)


def test_when_all_channels_have_news_each_gets_its_part_of_a_fetch(
    session: psycopg.Connection,
) -> None:
    runs = [begin(session, name) for name in ("march", "april", "may")]
    found = unread(session, "sales", "s1", {}, total=4)
    assert [each.run for each in found] == [runs[0], runs[0], runs[1], runs[2]]
    assert [each.seq for each in found] == [1, 2, 1, 1]


def test_a_step_does_not_wait_for_the_sender_of_what_it_read(
    session: psycopg.Connection, url: str, lease: Lease
) -> None:
    march = begin(session, "march")
    step = step_of(session, lease, march)
    with psycopg.connect(url) as sender:
        sender.execute("SELECT FROM tidegate.channel WHERE to_task = 's1' FOR NO KEY UPDATE")
        session.execute("SET lock_timeout = '10s'")
        assert commit(session, step).is_new
    assert unread(session, "sales", "s1", {}) == []
    with session.transaction():
        append(session, march, INTO, [(message_id("more"), Event("more", march.key))])
    assert [each.seq for each in unread(session, "sales", "s1", {})] == [4]


def test_steps_that_close_runs_and_steps_that_do_not_never_block_each_other_for_good(
    database: Database, session: psycopg.Connection
) -> None:
    """Many tasks with the same runs in opposite orders; a deadlock would be retried and logged."""
    runs = [begin(session, f"run {n}") for n in range(12)]
    leases = [own(session, "task", f"sales/t{n}") for n in range(6)]

    def steps(number: int) -> None:
        order = runs if number % 2 else runs[::-1]
        touched = tuple(run.id for run in order)
        for run in order:
            ended = StepCommit(leases[number], ended_runs=(run.id,), runs=touched)
            plain = StepCommit(leases[number], runs=touched)
            database.transact(partial(commit_step, step=ended))
            database.transact(partial(commit_step, step=plain))

    before = deadlocks(session)
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(steps, range(6)))
    assert closed_among(session, [run.id for run in runs]) == {run.id for run in runs}
    assert deadlocks(session) == before


def deadlocks(session: psycopg.Connection) -> int:
    session.execute("SELECT pg_stat_force_next_flush()")
    query = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    row = session.execute(query).fetchone()
    assert row is not None
    return int(row[0])
