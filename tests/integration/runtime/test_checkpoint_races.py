"""Two do something about one cut at the same time: one after the other, or one in vain."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.errors import LockNotAvailable

from tests.integration.runtime.names import checksums
from tidegate.checkpoint import Checkpoints, CheckpointState
from tidegate.dataflow import Batch, CheckpointBarrier, CheckpointId, SinkResult
from tidegate.errors import Fenced, UnknownCheckpoint
from tidegate.runtime.monitor.checkpoint_coordinator import CheckpointCoordinator
from tidegate.store import (
    Acknowledgement,
    ChannelName,
    Chunk,
    Database,
    Lease,
    RunInfo,
    RunState,
    StateEntry,
    StepCommit,
    acquire,
    begin_run,
    close_run,
    commit_step,
    end_source,
    record_chunk,
)
from tidegate.store.checkpoints import checkpoints as checkpoint_store
from tidegate.store.checkpoints import restore as restore_store
from tidegate.store.runs import retention

INTO, OUT = ChannelName("head", "scan"), ChannelName("scan", "end")
GRAPH = restore_store.ChannelGraph("", [INTO, OUT], {"orders": [[INTO]]})
GIVEN = SinkResult("all", Batch((), 0))
CLOSED = "it is over"


@pytest.fixture
def session(url: str, database: Database) -> Iterator[psycopg.Connection]:
    with psycopg.connect(url, autocommit=True) as session:
        session.execute("SET lock_timeout = '200ms'")
        yield session


@pytest.fixture
def other(url: str, session: psycopg.Connection) -> Iterator[psycopg.Connection]:
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("SET lock_timeout = '200ms'")
        yield other


@pytest.fixture
def run(session: psycopg.Connection) -> RunInfo:
    return begin_run(session, "sales", "march", [INTO, OUT], sources=["orders"])


@pytest.fixture
def watch(session: psycopg.Connection) -> Lease:
    return lease(session, "monitor", "sales", "ann")


def lease(session: psycopg.Connection, kind: str, key: str, owner: str, seconds: int = 60) -> Lease:
    taken = acquire(session, kind, key, owner, seconds)
    assert taken is not None
    return taken


def begin(session: psycopg.Connection, run: RunInfo) -> int:
    with session.transaction():
        number = checkpoint_store.trigger(session, run, CheckpointId.new())
        assert number is not None
        assert checkpoint_store.inject(
            session, run, "orders", CheckpointBarrier(number, number), [INTO]
        )
    return number


def acknowledge(session: psycopg.Connection, run: RunInfo, number: int) -> None:
    """The barrier leaves the last task, which has something for this checkpoint alone."""
    end = lease(session, "task", "sales/end", "ann")
    said = Acknowledgement(run.id, number, "end", outputs=(StateEntry(0, GIVEN),))
    with session.transaction():
        commit_step(session, StepCommit(end, acknowledged=(said,), runs=(run.id,)))


def commit(session: psycopg.Connection, run: RunInfo) -> int:
    number = begin(session, run)
    acknowledge(session, run, number)
    with session.transaction():
        assert checkpoint_store.commit(session, run, number, {})
    return number


def state(session: psycopg.Connection, run: RunInfo, number: int) -> CheckpointState:
    return {it.number: it.state for it in checkpoint_store.checkpoints_of(session, run)}[number]


def test_a_cut_that_is_being_read_is_not_retired(
    session: psycopg.Connection, other: psycopg.Connection, run: RunInfo
) -> None:
    first = commit(session, run)
    commit(session, run)
    with session.transaction():
        assert checkpoint_store.committed_checkpoint(session, run, first) is not None
        with pytest.raises(LockNotAvailable), other.transaction():
            retention.retire(other, run, 1)
        assert checkpoint_store.sink_results(session, run, "end", first) == [GIVEN]
    assert retention.retire(other, run, 1) == 1
    assert checkpoint_store.committed_checkpoint(session, run, first) is None


def test_a_run_is_not_restored_to_a_cut_that_was_retired_meanwhile(
    session: psycopg.Connection, run: RunInfo
) -> None:
    first, second = commit(session, run), commit(session, run)
    retention.retire(session, run, 1)
    with pytest.raises(UnknownCheckpoint) as told, session.transaction():
        restore_store.restore(session, run, first, GRAPH)
    assert told.value.known == str(second)
    assert checkpoint_store.runs_to_checkpoint(session, "sales") == []


def test_what_sinks_gave_for_a_checkpoint_after_it_was_given_up_is_never_seen(
    session: psycopg.Connection, run: RunInfo
) -> None:
    number = begin(session, run)
    assert checkpoint_store.abort(session, run, number, "too slow", "end")
    acknowledge(session, run, number)
    assert not checkpoint_store.commit(session, run, number, {})
    assert checkpoint_store.committed_checkpoint(session, run) is None
    following = commit(session, run)
    assert checkpoint_store.sink_results(session, run, "end", following) == [GIVEN]


@pytest.mark.parametrize("first", ["commit", "abort"])
def test_who_commits_and_who_aborts_wait_for_each_other_and_one_does_it(
    first: str, session: psycopg.Connection, other: psycopg.Connection, run: RunInfo
) -> None:
    number = begin(session, run)
    acknowledge(session, run, number)
    verdicts = {
        "commit": lambda c: checkpoint_store.commit(c, run, number, {}),
        "abort": lambda c: checkpoint_store.abort(c, run, number, "late", "nobody"),
    }
    (second,) = verdicts.keys() - {first}
    with session.transaction():
        assert verdicts[first](session)
        with pytest.raises(LockNotAvailable), other.transaction():
            verdicts[second](other)
    assert not verdicts[second](other)
    wanted = {"commit": CheckpointState.COMMITTED, "abort": CheckpointState.ABORTED}
    assert state(session, run, number) is wanted[first]


def test_a_barrier_is_not_injected_while_its_checkpoint_is_given_up(
    session: psycopg.Connection, other: psycopg.Connection, run: RunInfo
) -> None:
    with session.transaction():
        number = checkpoint_store.trigger(session, run, CheckpointId.new())
    assert number is not None
    barrier = CheckpointBarrier(number, 1)
    with session.transaction():
        assert checkpoint_store.abort(session, run, number, "late", "nobody")
        with pytest.raises(LockNotAvailable), other.transaction():
            checkpoint_store.inject(other, run, "orders", barrier, [INTO])
    with other.transaction():
        assert not checkpoint_store.inject(other, run, "orders", barrier, [INTO])


def test_a_source_that_ends_before_its_barrier_counts_with_all_it_has(
    session: psycopg.Connection, run: RunInfo
) -> None:
    with session.transaction():
        number = checkpoint_store.trigger(session, run, CheckpointId.new())
    assert number is not None
    chunk = Chunk("orders", 1, "a", 1, 1, (), 0)
    with session.transaction():
        record_chunk(session, run, chunk, [INTO], [INTO])
        end_source(session, run, "orders", None, [INTO])
    with session.transaction():
        assert not checkpoint_store.inject(
            session, run, "orders", CheckpointBarrier(number, 1), [INTO]
        )
    acknowledge(session, run, number)
    assert checkpoint_store.commit(session, run, number, {})
    checkpoint = checkpoint_store.committed_checkpoint(session, run)
    assert checkpoint is not None
    assert checkpoint.manifest["sources"] == {"orders": {"chunks": 1, "ended": True}}


def test_a_coordinator_that_was_replaced_changes_nothing(
    session: psycopg.Connection, database: Database, run: RunInfo
) -> None:
    stale = lease(session, "monitor", "sales", "ann", seconds=0)
    lease(session, "monitor", "sales", "bob")
    number = begin(session, run)
    with pytest.raises(Fenced):
        CheckpointCoordinator(database, "sales", checksums).look(stale)
    assert state(session, run, number) is CheckpointState.TRIGGERED


def test_a_run_that_is_closed_before_its_checkpoint_is_begun_is_no_trouble(
    session: psycopg.Connection,
    database: Database,
    run: RunInfo,
    watch: Lease,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checkpoint_store.set_checkpoints(session, run, Checkpoints(every=0.0, pause=0.0))
    facts = checkpoint_store.runs_to_checkpoint(session, "sales")
    close_run(session, run, RunState.CANCELLED, CLOSED)
    monkeypatch.setattr(checkpoint_store, "runs_to_checkpoint", lambda *_: facts)
    CheckpointCoordinator(database, "sales", checksums).look(watch)
    assert checkpoint_store.checkpoints_of(session, run) == []


@pytest.mark.parametrize("how", [RunState.CANCELLED, RunState.FAILED])
def test_a_checkpoint_of_a_run_that_was_closed_is_given_up(
    how: RunState, session: psycopg.Connection, database: Database, run: RunInfo, watch: Lease
) -> None:
    number = begin(session, run)
    close_run(session, run, how, CLOSED)
    CheckpointCoordinator(database, "sales", checksums).look(watch)
    (it,) = checkpoint_store.checkpoints_of(session, run)
    assert (it.number, it.state) == (number, CheckpointState.ABORTED)
    assert it.reason == "the run was closed"


def test_a_checkpoint_under_way_is_not_part_of_the_run_that_is_restored(
    session: psycopg.Connection, database: Database, run: RunInfo, watch: Lease
) -> None:
    first = commit(session, run)
    under_way = begin(session, run)
    with session.transaction():
        restored = restore_store.restore(session, run, first, GRAPH)
    CheckpointCoordinator(database, "sales", checksums).look(watch)
    assert state(session, run, under_way) is CheckpointState.ABORTED
    assert state(session, restored, under_way) is CheckpointState.ABORTED
    assert checkpoint_store.sink_results(session, restored, "end", first) == [GIVEN]
    assert begin(session, restored) == under_way + 1
