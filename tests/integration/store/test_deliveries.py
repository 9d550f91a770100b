"""Chunks are recorded once, reach their tasks once, and END follows the last of them."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psycopg
import pytest

from tidegate.dataflow import Barrier, BarrierKind, Event, StreamMessage, Watermark
from tidegate.errors import (
    ChannelConflict,
    ChunkConflict,
    ChunksBeyond,
    ChunksMissing,
    RunEnded,
    UnknownRun,
    UnknownSource,
)
from tidegate.store import (
    ChannelName,
    Chunk,
    Database,
    RunInfo,
    RunState,
    begin_run,
    close_run,
    end_source,
    find_chunk,
    record_chunk,
    remove_closed_runs,
    unread,
)
from tidegate.store.runs.deliveries import END_ID

SHARDS = [ChannelName("head", "scan/0"), ChannelName("head", "scan/1")]


@pytest.fixture
def run(session: psycopg.Connection) -> RunInfo:
    return begin_run(session, "sales", "march", SHARDS, sources=["orders", "stores"])


def chunk(number: int, content: str = "a", source: str = "orders") -> Chunk:
    files = (f"chunks/run=1/to={number % 2}/{source}/{number}-{content}.parquet",)
    return Chunk(source, number, content * 64, 10, 100, files, shard=number % 2)


def deliver(session: psycopg.Connection, run: RunInfo, piece: Chunk) -> bool:
    with session.transaction():
        return record_chunk(session, run, piece, [SHARDS[piece.shard]], SHARDS)


def end(
    session: psycopg.Connection, run: RunInfo, chunks: int | None = None, source: str = "orders"
) -> bool:
    with session.transaction():
        return end_source(session, run, source, chunks, SHARDS)


def on_shard(session: psycopg.Connection, shard: int) -> list[StreamMessage]:
    return [each.message for each in unread(session, "sales", f"scan/{shard}", {})]


def event(run: RunInfo, piece: Chunk) -> Event[object]:
    return Event(piece.batch, run.key)


def end_after(run: RunInfo, count: int) -> Barrier:
    return BarrierKind.END_OF_RUN.with_id(END_ID, run.key).counting(count)


def test_a_chunk_goes_to_its_shard_and_can_be_found(
    session: psycopg.Connection, run: RunInfo
) -> None:
    piece = chunk(1)
    assert find_chunk(session, run, "orders", 1) is None
    assert deliver(session, run, piece)
    assert find_chunk(session, run, "orders", 1) == piece
    assert on_shard(session, 1) == [event(run, piece)]
    assert on_shard(session, 0) == []


def test_a_chunk_delivered_again_is_there_once(session: psycopg.Connection, run: RunInfo) -> None:
    assert deliver(session, run, chunk(1))
    assert not deliver(session, run, chunk(1))
    assert len(on_shard(session, 1)) == 1


def test_a_watermark_follows_the_chunk_that_moves_it_on_every_shard(
    session: psycopg.Connection, run: RunInfo
) -> None:
    first, late, last = (
        replace(chunk(at), watermark=time) for at, time in [(1, 5), (2, 3), (3, 9)]
    )
    for piece in (first, late, last):
        assert deliver(session, run, piece)
    assert find_chunk(session, run, "orders", 2) == late
    five, nine = Watermark(5, run.key), Watermark(9, run.key)
    assert on_shard(session, 1) == [event(run, first), five, event(run, last), nine]
    assert on_shard(session, 0) == [five, event(run, late), nine]


def test_a_chunk_delivered_again_says_nothing_new_about_time(
    session: psycopg.Connection, run: RunInfo
) -> None:
    deliver(session, run, replace(chunk(1), watermark=5))
    assert not deliver(session, run, replace(chunk(1), watermark=9))
    assert not deliver(session, run, replace(chunk(1), watermark=5))
    assert on_shard(session, 0) == [Watermark(5, run.key)]


def test_a_source_ends_behind_its_last_watermark(session: psycopg.Connection, run: RunInfo) -> None:
    end(session, run, 1)
    deliver(session, run, replace(chunk(1), watermark=5))
    assert on_shard(session, 0) == [Watermark(5, run.key), end_after(run, 1)]


def test_each_source_has_a_watermark_of_its_own(session: psycopg.Connection, run: RunInfo) -> None:
    deliver(session, run, replace(chunk(1), watermark=9))
    deliver(session, run, replace(chunk(1, source="stores"), watermark=5))
    deliver(session, run, replace(chunk(2, source="stores"), watermark=7))
    times = [it.time for it in on_shard(session, 0) if isinstance(it, Watermark)]
    assert times == [9, 5, 7]


def test_other_content_under_the_same_number_changes_nothing(
    session: psycopg.Connection, run: RunInfo
) -> None:
    deliver(session, run, chunk(1))
    with pytest.raises(ChunkConflict):
        deliver(session, run, chunk(1, "b"))
    assert find_chunk(session, run, "orders", 1) == chunk(1)


def test_end_goes_to_every_shard_with_the_count_of_its_channel(
    session: psycopg.Connection, run: RunInfo
) -> None:
    deliver(session, run, chunk(1))
    deliver(session, run, chunk(2))
    deliver(session, run, chunk(3))
    assert end(session, run)
    assert not end(session, run)
    assert not end(session, run, 3)
    assert on_shard(session, 0)[-1] == end_after(run, 1)
    assert on_shard(session, 1)[-1] == end_after(run, 2)


def test_an_empty_source_ends_with_zero_chunks_everywhere(
    session: psycopg.Connection, run: RunInfo
) -> None:
    assert end(session, run, 0)
    assert on_shard(session, 0) == on_shard(session, 1) == [end_after(run, 0)]


def test_a_declared_end_waits_for_the_last_missing_chunk(
    session: psycopg.Connection, run: RunInfo
) -> None:
    deliver(session, run, chunk(3))
    assert end(session, run, 3)
    deliver(session, run, chunk(1))
    assert not any(isinstance(each, Barrier) for each in on_shard(session, 1))
    deliver(session, run, chunk(2))
    assert on_shard(session, 0) == [event(run, chunk(2)), end_after(run, 1)]
    assert on_shard(session, 1)[-1] == end_after(run, 2)


def test_a_source_with_gaps_does_not_end_without_a_count(
    session: psycopg.Connection, run: RunInfo
) -> None:
    for number in (2, 5, 6):
        deliver(session, run, chunk(number))
    with pytest.raises(ChunksMissing) as refused:
        end(session, run)
    assert refused.value.missing == (1, 3, 4)


def test_a_count_that_leaves_delivered_chunks_out_is_refused(
    session: psycopg.Connection, run: RunInfo
) -> None:
    for number in (1, 3, 4):
        deliver(session, run, chunk(number))
    with pytest.raises(ChunksBeyond) as refused:
        end(session, run, 2)
    assert refused.value.beyond == (3, 4)


def test_sources_end_one_by_one(session: psycopg.Connection, run: RunInfo) -> None:
    assert end(session, run, 1, source="stores")
    assert end(session, run, 0, source="orders")
    assert not any(isinstance(each, Event) for shard in (0, 1) for each in on_shard(session, shard))


def test_a_source_or_channel_that_the_run_does_not_have_is_refused(
    session: psycopg.Connection, run: RunInfo
) -> None:
    with pytest.raises(UnknownSource) as refused:
        deliver(session, run, chunk(1, source="staff"))
    assert refused.value.known == "orders, stores"
    with pytest.raises(ChannelConflict), session.transaction():
        record_chunk(session, run, chunk(1), [ChannelName("head", "scan/7")], SHARDS)
    assert find_chunk(session, run, "orders", 1) is None


def test_a_closed_run_takes_no_chunks_and_says_why(
    session: psycopg.Connection, run: RunInfo
) -> None:
    close_run(session, run, RunState.FAILED, "disk full")
    with pytest.raises(RunEnded) as refused:
        deliver(session, run, chunk(1))
    assert "disk full" in str(refused.value)
    with pytest.raises(RunEnded):
        end(session, run, 0)


def test_a_removed_run_is_unknown(session: psycopg.Connection, run: RunInfo) -> None:
    deliver(session, run, chunk(1))
    close_run(session, run, RunState.CANCELLED)
    remove_closed_runs(session, seconds=0)
    with pytest.raises(UnknownRun):
        deliver(session, run, chunk(1))
    assert session.execute("SELECT FROM tidegate.source").rowcount == 0


def test_many_clients_at_once_deliver_everything_exactly_once(
    database: Database, session: psycopg.Connection, run: RunInfo
) -> None:
    count = 60
    calls: list[int | None] = [*range(1, count + 1)] * 3 + [None] * 3
    random.Random(7).shuffle(calls)

    def call(number: int | None) -> bool:
        if number is None:
            return database.transact(lambda c: end_source(c, run, "orders", count, SHARDS))
        channels = [SHARDS[number % 2]]
        return database.transact(lambda c: record_chunk(c, run, chunk(number), channels, SHARDS))

    with ThreadPoolExecutor(8) as threads:
        fresh = list(threads.map(call, calls))
    assert sum(fresh) == count + 1
    for shard in (0, 1):
        *events, last = on_shard(session, shard)
        assert last == end_after(run, count // 2)
        wanted = [chunk(n) for n in range(1, count + 1) if n % 2 == shard]
        assert len(events) == len(wanted)
        assert all(event(run, piece) in events for piece in wanted)
