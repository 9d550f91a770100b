"""Channels: what is appended once is there once, and a step is committed whole or not at all."""

from __future__ import annotations

from dataclasses import replace

import psycopg
import pytest

from tidegate.dataflow import BarrierKind, Event, StreamMessage
from tidegate.errors import ChannelConflict, Fenced, RunEnded, RunExists
from tidegate.store import (
    ChannelName,
    CursorAdvance,
    Lease,
    OutgoingMessage,
    RunInfo,
    RunState,
    StepCommit,
    acquire,
    begin_run,
    channels_of,
    close_run,
    commit_step,
    find_run,
    message_id,
    remove_closed_runs,
    unread,
)
from tidegate.store.runs.channels import append

INTO, OUT = ChannelName("head", "s1"), ChannelName("s1", "s2")


@pytest.fixture
def run(session: psycopg.Connection) -> RunInfo:
    return begin_run(session, "sales", "march", [INTO, OUT])


@pytest.fixture
def lease(session: psycopg.Connection) -> Lease:
    return own(session, "ann")


def own(session: psycopg.Connection, owner: str) -> Lease:
    lease = acquire(session, "task", "sales/s1", owner, seconds=0)
    assert lease is not None
    return lease


def events(run: RunInfo, *payloads: object) -> list[StreamMessage]:
    return [Event(payload, run.key) for payload in payloads]


def put(session: psycopg.Connection, run: RunInfo, *messages: StreamMessage) -> int:
    sent = [(message_id(str(message)), message) for message in messages]
    with session.transaction():
        return append(session, run, INTO, sent)


def waiting(session: psycopg.Connection, task: str = "s1") -> list[tuple[int, StreamMessage]]:
    return [(each.seq, each.message) for each in unread(session, "sales", task, {})]


def step_over(session: psycopg.Connection, run: RunInfo, lease: Lease, number: int) -> StepCommit:
    """The step that takes the first `number` messages and sends the word "done"."""
    channels = {channel.name: channel for channel in channels_of(session, run, "s1")}
    (done,) = events(run, "done")
    return StepCommit(
        lease,
        (CursorAdvance(channels[INTO].id, 0, number),),
        (OutgoingMessage(channels[OUT].id, message_id("done", number), done),),
        topics=("sales/s2",),
    )


def commit(session: psycopg.Connection, step: StepCommit) -> bool:
    with session.transaction():
        return commit_step(session, step).is_new


def test_messages_are_numbered_densely_from_one(session: psycopg.Connection, run: RunInfo) -> None:
    one, two, three = events(run, 1, 2, 3)
    put(session, run, one)
    put(session, run, two, three)
    assert waiting(session) == [(1, one), (2, two), (3, three)]


def test_a_message_delivered_again_is_there_once(session: psycopg.Connection, run: RunInfo) -> None:
    one, two = events(run, 1, 2)
    assert put(session, run, one) == 1
    assert put(session, run, one, two) == 1
    assert waiting(session) == [(1, one), (2, two)]


def test_an_end_carries_how_many_came_before_it(session: psycopg.Connection, run: RunInfo) -> None:
    end = BarrierKind.END_OF_RUN.with_id(1, run.key)
    put(session, run, *events(run, 1, 2), end)
    assert waiting(session)[-1] == (3, end.counting(2))


def test_a_channel_that_the_run_does_not_have_is_refused(
    session: psycopg.Connection, run: RunInfo
) -> None:
    with pytest.raises(ChannelConflict):
        append(session, run, ChannelName("head", "s9"), [])


def test_a_step_moves_cursors_and_sends_at_once(
    session: psycopg.Connection, run: RunInfo, lease: Lease
) -> None:
    put(session, run, *events(run, 1, 2, 3))
    assert commit(session, step_over(session, run, lease, 2))
    assert waiting(session) == [(3, *events(run, 3))]
    assert waiting(session, "s2") == [(1, *events(run, "done"))]


def test_a_step_that_was_committed_before_changes_nothing_again(
    session: psycopg.Connection, run: RunInfo, lease: Lease
) -> None:
    put(session, run, *events(run, 1, 2))
    step = step_over(session, run, lease, 2)
    assert commit(session, step)
    assert not commit(session, step)
    assert not commit(session, replace(step, advances=()))
    assert waiting(session, "s2") == [(1, *events(run, "done"))]


def test_a_stale_owner_s_step_changes_nothing_and_says_so(
    session: psycopg.Connection, run: RunInfo, lease: Lease
) -> None:
    put(session, run, *events(run, 1, 2))
    own(session, "bob")
    with pytest.raises(Fenced) as fenced:
        commit(session, step_over(session, run, lease, 2))
    assert (fenced.value.owner, fenced.value.holder) == ("ann", "bob")
    assert len(waiting(session)) == 2
    assert waiting(session, "s2") == []


def test_a_step_from_where_the_cursor_is_not_changes_nothing(
    session: psycopg.Connection, run: RunInfo, lease: Lease
) -> None:
    put(session, run, *events(run, 1, 2, 3))
    commit(session, step_over(session, run, lease, 2))
    with pytest.raises(ChannelConflict):
        commit(session, step_over(session, run, lease, 3))
    assert waiting(session, "s2") == [(1, *events(run, "done"))]


def test_a_run_that_ended_is_not_read_any_more(
    session: psycopg.Connection, run: RunInfo, lease: Lease
) -> None:
    put(session, run, *events(run, 1))
    commit(session, StepCommit(lease, ended_runs=(run.id,)))
    assert waiting(session) == []
    ended = find_run(session, "sales", "march")
    assert ended is not None
    assert ended.state is RunState.ENDED


@pytest.mark.parametrize("state", [RunState.CANCELLED, RunState.FAILED, RunState.ENDED])
def test_a_closed_run_takes_nothing_more_and_stays_closed(
    session: psycopg.Connection, run: RunInfo, state: RunState
) -> None:
    put(session, run, *events(run, 1))
    assert close_run(session, run, state)
    assert not close_run(session, run, RunState.FAILED)
    assert waiting(session) == []
    with pytest.raises(RunEnded) as refused:
        put(session, run, *events(run, 2))
    assert refused.value.how == state.value


def test_a_closed_run_is_removed_with_everything_of_its_own_and_an_open_one_is_not(
    session: psycopg.Connection, run: RunInfo
) -> None:
    other = begin_run(session, "sales", "april", [INTO, OUT])
    put(session, run, *events(run, 1))
    put(session, other, *events(other, 2))
    close_run(session, run, RunState.CANCELLED)
    assert remove_closed_runs(session, seconds=3600) == 0
    assert remove_closed_runs(session, seconds=0) == 1
    assert find_run(session, "sales", "march") is None
    assert waiting(session) == [(1, *events(other, 2))]
    left = session.execute("SELECT count(*), count(distinct channel_id) FROM tidegate.message")
    assert left.fetchone() == (1, 1)


def test_the_name_of_an_open_run_is_taken(session: psycopg.Connection, run: RunInfo) -> None:
    with pytest.raises(RunExists):
        begin_run(session, "sales", "march", [])
    with pytest.raises(RunExists):
        begin_run(session, "sales", "", [])
    assert begin_run(session, "stores", "march", []).incarnation == 1


def test_a_name_used_again_is_another_incarnation_with_channels_of_its_own(
    session: psycopg.Connection, run: RunInfo, lease: Lease
) -> None:
    put(session, run, *events(run, "first"))
    commit(session, StepCommit(lease, ended_runs=(run.id,)))
    again = begin_run(session, "sales", "march", [INTO, OUT])
    assert (run.key, again.key) == ("march#1", "march#2")
    put(session, again, *events(again, "second"))
    assert waiting(session) == [(1, *events(again, "second"))]
