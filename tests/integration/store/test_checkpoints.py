"""Checkpoints as rows: one at a time, injected once, committed by one row or not at all."""

from __future__ import annotations

import psycopg
import pytest

from tidegate.checkpoint import Checkpoints, CheckpointState
from tidegate.dataflow import Batch, CheckpointBarrier, CheckpointId, SinkResult
from tidegate.errors import RunEnded
from tidegate.store import (
    Acknowledgement,
    ChannelName,
    Chunk,
    CursorAdvance,
    FileChecksum,
    RestoredEntry,
    RunInfo,
    RunState,
    StateEntry,
    StepCommit,
    acquire,
    begin_run,
    channels_of,
    close_run,
    commit_step,
    end_source,
    record_chunk,
    run_facts,
)
from tidegate.store.checkpoints import checkpoints as checkpoint_store
from tidegate.store.runs import retention
from tidegate.store.runs.releases import facts_of

INTO, OUT = ChannelName("head", "scan"), ChannelName("scan", "end")
FILE = FileChecksum("batches/x.parquet", 10, "ab")


@pytest.fixture
def run(session: psycopg.Connection) -> RunInfo:
    return begin_run(session, "sales", "march", [INTO, OUT], sources=["orders"])


def deliver(session: psycopg.Connection, run: RunInfo, number: int) -> None:
    with session.transaction():
        record_chunk(session, run, Chunk("orders", number, "a", 1, 1, (), 0), [INTO], [INTO])


def trigger(session: psycopg.Connection, run: RunInfo) -> int | None:
    with session.transaction():
        return checkpoint_store.trigger(session, run, CheckpointId.new())


def inject(session: psycopg.Connection, run: RunInfo, number: int) -> bool:
    with session.transaction():
        return checkpoint_store.inject(
            session, run, "orders", CheckpointBarrier(number, number), [INTO]
        )


def step(
    session: psycopg.Connection,
    run: RunInfo,
    task: str,
    target: int,
    said: Acknowledgement | None = None,
) -> None:
    """A step of a task that reads up to a message."""
    lease = acquire(session, "task", f"sales/{task}", "ann", 3600)
    assert lease is not None
    channel = next(it for it in channels_of(session, run, task) if it.name.to_task == task)
    moves = (CursorAdvance(channel.id, channel.cursor, target),)
    with session.transaction():
        said_now = (said,) if said else ()
        commit_step(session, StepCommit(lease, moves, acknowledged=said_now))


def states(session: psycopg.Connection, run: RunInfo) -> dict[int, CheckpointState]:
    return {it.number: it.state for it in checkpoint_store.checkpoints_of(session, run)}


# --- beginning -------------------------------------------------------------------------------


def test_there_is_one_at_a_time(session: psycopg.Connection, run: RunInfo) -> None:
    assert trigger(session, run) == 1
    assert trigger(session, run) is None


def test_a_number_is_never_used_again(session: psycopg.Connection, run: RunInfo) -> None:
    trigger(session, run)
    checkpoint_store.abort(session, run, 1, "too slow", "scan")

    assert trigger(session, run) == 2
    assert states(session, run) == {1: CheckpointState.ABORTED, 2: CheckpointState.TRIGGERED}


def test_a_closed_run_is_not_cut(session: psycopg.Connection, run: RunInfo) -> None:
    close_run(session, run, RunState.CANCELLED)

    with pytest.raises(RunEnded):
        trigger(session, run)


def test_a_run_whose_sources_have_ended_is_not_cut(
    session: psycopg.Connection, run: RunInfo
) -> None:
    with session.transaction():
        end_source(session, run, "orders", 0, [INTO])

    assert trigger(session, run) is None


# --- injecting -------------------------------------------------------------------------------


def test_a_source_owes_a_barrier_until_it_is_on_its_channels_once(
    session: psycopg.Connection, run: RunInfo
) -> None:
    trigger(session, run)
    assert [
        (it.source, it.number) for it in checkpoint_store.pending_barriers(session, "sales")
    ] == [("orders", 1)]

    assert inject(session, run, 1)
    assert not inject(session, run, 1)
    assert checkpoint_store.pending_barriers(session, "sales") == []


def test_a_source_that_has_ended_owes_nothing(session: psycopg.Connection, run: RunInfo) -> None:
    trigger(session, run)
    with session.transaction():
        end_source(session, run, "orders", 0, [INTO])

    assert checkpoint_store.pending_barriers(session, "sales") == []
    assert not inject(session, run, 1)


def test_a_barrier_that_is_not_wanted_any_more_is_not_injected(
    session: psycopg.Connection, run: RunInfo
) -> None:
    trigger(session, run)
    checkpoint_store.abort(session, run, 1, "too slow", "scan")

    assert not inject(session, run, 1)


def test_a_cut_says_how_many_chunks_came_before_its_barrier(
    session: psycopg.Connection, run: RunInfo
) -> None:
    deliver(session, run, 1)
    trigger(session, run)
    inject(session, run, 1)
    deliver(session, run, 2)
    checkpoint_store.commit(session, run, 1, {"tidegate": "0"})

    checkpoint = checkpoint_store.committed_checkpoint(session, run)
    assert checkpoint is not None
    assert checkpoint.manifest["sources"] == {"orders": {"chunks": 1, "ended": False}}
    assert checkpoint.manifest["versions"] == {"tidegate": "0"}


# --- settling --------------------------------------------------------------------------------


def test_it_is_committed_or_aborted_and_nothing_follows(
    session: psycopg.Connection, run: RunInfo
) -> None:
    trigger(session, run)
    assert checkpoint_store.commit(session, run, 1, {})
    assert not checkpoint_store.abort(session, run, 1, "too slow", "scan")
    assert not checkpoint_store.commit(session, run, 1, {})

    trigger(session, run)
    assert checkpoint_store.abort(session, run, 2, "too slow", "scan")
    assert not checkpoint_store.commit(session, run, 2, {})
    assert states(session, run) == {1: CheckpointState.COMMITTED, 2: CheckpointState.ABORTED}


def test_what_sinks_gave_is_visible_with_the_cut_and_gone_when_it_is_aborted(
    session: psycopg.Connection, run: RunInfo
) -> None:
    for number in (1, 2):
        trigger(session, run)
        inject(session, run, number)
        outputs = (StateEntry(0, SinkResult("q1", Batch((), number)), (FILE,)),)
        step(session, run, "scan", number, Acknowledgement(run.id, number, "end", outputs=outputs))
        if number == 1:
            assert checkpoint_store.committed_checkpoint(session, run) is None
            checkpoint_store.commit(session, run, 1, {})
        else:
            checkpoint_store.abort(session, run, 2, "too slow", "scan")

    assert checkpoint_store.sink_results(session, run, "end", 1) == [SinkResult("q1", Batch((), 1))]
    assert checkpoint_store.sink_results(session, run, "end", 2) == []


def result(number: int) -> SinkResult:
    return SinkResult("q1", Batch((f"{number}",), 1))


def test_a_state_is_there_from_its_checkpoint_on_until_another_holds_it(
    session: psycopg.Connection, run: RunInfo
) -> None:
    for number in (1, 2, 3):
        trigger(session, run)
        inject(session, run, number)
        compacted = ((0, 2),) if number == 3 else ()
        kept = (StateEntry(0, result(number), (FILE,)),)
        said = Acknowledgement(run.id, number, "end", kept, compacted=compacted)
        step(session, run, "scan", number, said)
        checkpoint_store.commit(session, run, number, {})

    assert checkpoint_store.state_of(session, run, "end") == [RestoredEntry(0, 3, result(3))]
    given = checkpoint_store.sink_results(session, run, "end", 2)
    assert given == [result(1), result(2)]
    assert retention.retire(session, run, retained=1) == 2
    assert checkpoint_store.sink_results(session, run, "end", 3) == [result(3)]
    left = session.execute("SELECT count(*) FROM tidegate.task_state").fetchone()
    assert left == (1,)


def test_failures_are_counted_since_the_last_cut(session: psycopg.Connection, run: RunInfo) -> None:
    checkpoint_store.set_checkpoints(session, run, Checkpoints(every=1.0))
    for _ in range(2):
        number = trigger(session, run)
        assert number is not None
        checkpoint_store.abort(session, run, number, "too slow", "scan")
    ((_, facts),) = checkpoint_store.runs_to_checkpoint(session, "sales")
    assert (facts.failures, facts.collector) == (2, "end")

    number = trigger(session, run)
    assert number is not None
    checkpoint_store.commit(session, run, number, {})
    ((_, facts),) = checkpoint_store.runs_to_checkpoint(session, "sales")
    assert facts.failures == 0


def test_who_waits_and_for_whom_is_known(session: psycopg.Connection) -> None:
    channels = [
        INTO,
        ChannelName("head", "other"),
        ChannelName("scan", "end"),
        ChannelName("other", "end", 1),
    ]
    run = begin_run(session, "sales", "april", channels, sources=["orders", "others"])
    trigger(session, run)
    inject(session, run, 1)
    ((_, facts),) = checkpoint_store.runs_to_checkpoint(session, "sales")

    assert facts.pending is not None
    assert facts.pending.not_injected == ("others",)
    assert [(it.task, it.missing) for it in facts.pending.waiting] == [("scan", ())]


# --- pruning ---------------------------------------------------------------------------------


def test_what_is_pruned_counts_as_processed_and_is_not_missed(
    session: psycopg.Connection, run: RunInfo
) -> None:
    for number in (1, 2, 3):
        deliver(session, run, number)
    step(session, run, "scan", 2)

    assert retention.prune(session, run, seconds=0) == 2
    assert retention.prune(session, run, seconds=0) == 0
    (into, _) = run_facts(session, run).channels
    assert into.lost == ()
    step(session, run, "scan", 3)
    with session.transaction():
        end_source(session, run, "orders", 3, [INTO])
    facts = facts_of(session, run, "scan")
    assert facts.processed == {"head": frozenset({1, 2, 3})}


def test_what_was_sent_a_moment_ago_is_not_pruned(
    session: psycopg.Connection, run: RunInfo
) -> None:
    deliver(session, run, 1)
    step(session, run, "scan", 1)

    assert retention.prune(session, run) == 0


def test_files_that_lost_a_name_are_garbage_after_those_who_read_them(
    session: psycopg.Connection, run: RunInfo
) -> None:
    for number in (1, 2):
        trigger(session, run)
        inject(session, run, number)
        outputs = (StateEntry(0, result(number), (FileChecksum(f"{number}.parquet", 1, "ab"),)),)
        step(session, run, "scan", number, Acknowledgement(run.id, number, "end", outputs=outputs))
        checkpoint_store.commit(session, run, number, {})
    retention.retire(session, run, retained=1)

    assert retention.unused_files(session) == []
    assert retention.unused_files(session, seconds=0) == [(run.id, "1.parquet")]
    retention.forget_unused(session, [(run.id, "1.parquet")])
    assert retention.unused_files(session, seconds=0) == []
