"""Closed runs give their space back, and what still has a reader is known."""

from __future__ import annotations

import psycopg
import pytest

from tidegate.dataflow import Batch, Event
from tidegate.store import (
    ChannelName,
    Chunk,
    Lease,
    RunInfo,
    RunState,
    SinkPublication,
    StepCommit,
    acquire,
    begin_run,
    close_run,
    commit_step,
    files_named,
    find_chunk,
    message_id,
    reclaim,
    record_chunk,
    results_of,
    rows_in,
    to_reclaim,
    unfinished_among,
)
from tidegate.store.runs.channels import append

INTO, OUT = ChannelName("head", "scan/0"), ChannelName("scan/0", "collect")


@pytest.fixture
def lease(session: psycopg.Connection) -> Lease:
    lease = acquire(session, "task", "sales/collect", "ann", 3600)
    assert lease is not None
    return lease


@pytest.fixture
def run(session: psycopg.Connection) -> RunInfo:
    """A run with a chunk, a batch on its way, and a result that is about to be published."""
    run = begin_run(session, "sales", "march", [INTO, OUT], sources=["orders", "stores"])
    chunk = Chunk("orders", 1, "a", 10, 100, ("chunks/1.parquet",), 0)
    result = {"sink": "top", "batch": {"files": ["batches/2.parquet"], "rows": 1, "bytes": 1}}
    with session.transaction():
        record_chunk(session, run, chunk, [INTO], [INTO])
        append(session, run, OUT, [(message_id(1), Event(result, run.key))])
    return run


def publish(session: psycopg.Connection, run: RunInfo, lease: Lease) -> None:
    batches = [Batch(("batches/3.parquet",), 1, 1)]
    results = (SinkPublication(run.id, "top", batches, 1),)
    with session.transaction():
        commit_step(session, StepCommit(lease, published=results, ended_runs=(run.id,)))


def test_what_messages_chunks_and_results_name_is_known(
    session: psycopg.Connection, run: RunInfo, lease: Lease
) -> None:
    assert files_named(session, [run.id]) == {"chunks/1.parquet", "batches/2.parquet"}
    assert files_named(session, [run.id + 1]) == set()
    publish(session, run, lease)
    assert files_named(session, [run.id]) == {"batches/3.parquet"}, "the others have no reader"


def test_a_reclaimed_run_keeps_its_results_and_what_was_delivered(
    session: psycopg.Connection, run: RunInfo, lease: Lease
) -> None:
    publish(session, run, lease)
    (closed,) = to_reclaim(session)
    assert reclaim(session, closed)
    assert not reclaim(session, closed)
    assert to_reclaim(session) == []
    assert files_named(session, [run.id]) == {"batches/3.parquet"}
    assert results_of(session, run)["top"].rows == 1
    assert find_chunk(session, run, "orders", 1) is not None
    for table in ("channel", "cursor", "message"):
        assert session.execute(f"SELECT FROM tidegate.{table}".encode()).rowcount == 0


def test_an_open_run_is_not_reclaimed(session: psycopg.Connection, run: RunInfo) -> None:
    assert to_reclaim(session) == []
    assert not reclaim(session, run)
    assert unfinished_among(session, [run.id, 999]) == {run.id}
    close_run(session, run, RunState.CANCELLED)
    assert [each.id for each in to_reclaim(session)] == [run.id]
    assert unfinished_among(session, [run.id]) == set()


def test_rows_are_counted_by_source(session: psycopg.Connection, run: RunInfo) -> None:
    assert rows_in(session, run) == {"orders": 10, "stores": 0}
