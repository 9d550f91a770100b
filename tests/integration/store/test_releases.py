"""What the monitor sees of a run at a task, and that a release is made once and heard of."""

from __future__ import annotations

import psycopg
import pytest

from tidegate.completion import Fault, Producer, Release, Wait, decide
from tidegate.dataflow import BarrierKind, Event, StreamMessage
from tidegate.store import (
    ChannelName,
    CursorAdvance,
    Lease,
    RunInfo,
    RunState,
    StepCommit,
    acquire,
    begin_run,
    channels_of,
    close_run,
    commit_step,
    message_id,
    released,
    task_topic,
    unreleased,
)
from tidegate.store.runs.channels import append
from tidegate.store.runs.releases import facts_of, release

LEFT, RIGHT = ChannelName("map/0", "sum/0"), ChannelName("map/1", "sum/0")


@pytest.fixture
def run(session: psycopg.Connection) -> RunInfo:
    return begin_run(session, "sales", "march", [LEFT, RIGHT])


@pytest.fixture
def lease(session: psycopg.Connection) -> Lease:
    lease = acquire(session, "task", "sales/sum/0", "ann", 3600)
    assert lease is not None
    return lease


def put(
    session: psycopg.Connection, run: RunInfo, channel: ChannelName, *messages: StreamMessage
) -> None:
    named = [(message_id(channel.from_task, str(message)), message) for message in messages]
    with session.transaction():
        append(session, run, channel, named)


def send(
    session: psycopg.Connection, run: RunInfo, channel: ChannelName, *payloads: object
) -> None:
    put(session, run, channel, *(Event(payload, run.key) for payload in payloads))


def end(session: psycopg.Connection, run: RunInfo, channel: ChannelName) -> None:
    put(session, run, channel, BarrierKind.END_OF_RUN.with_id(1, run.key))


def process(
    session: psycopg.Connection, run: RunInfo, lease: Lease, channel: ChannelName, up_to: int
) -> None:
    state = next(each for each in channels_of(session, run, "sum/0") if each.name == channel)
    with session.transaction():
        commit_step(session, StepCommit(lease, (CursorAdvance(state.id, state.cursor, up_to),)))


def waiting(session: psycopg.Connection) -> list[tuple[RunInfo, str]]:
    return [(run, task) for run, task, _ in unreleased(session, "sales", ["sum/0", "sum/1"])]


def test_a_run_is_looked_at_when_all_producers_have_declared(
    session: psycopg.Connection, run: RunInfo
) -> None:
    send(session, run, LEFT, 1, 2)
    end(session, run, LEFT)
    assert waiting(session) == []
    end(session, run, RIGHT)
    assert waiting(session) == [(run, "sum/0")]
    assert unreleased(session, "stores", ["sum/0"]) == []


def test_the_facts_are_what_was_declared_and_what_was_processed(
    session: psycopg.Connection, run: RunInfo, lease: Lease
) -> None:
    send(session, run, LEFT, 1, 2, 3)
    end(session, run, LEFT)
    end(session, run, RIGHT)
    process(session, run, lease, LEFT, 2)
    ((_, _, facts),) = unreleased(session, "sales", ["sum/0"])
    assert facts.producers == (Producer("map/0", 3), Producer("map/1", 0))
    assert facts.processed == {"map/0": {1, 2}, "map/1": set()}
    assert decide(facts) == Wait((), {"map/0": (3,)})


def test_end_itself_is_not_counted_as_processed(
    session: psycopg.Connection, run: RunInfo, lease: Lease
) -> None:
    send(session, run, LEFT, 1)
    end(session, run, LEFT)
    end(session, run, RIGHT)
    process(session, run, lease, LEFT, 2)
    facts = facts_of(session, run, "sum/0")
    assert facts.processed["map/0"] == {1}
    assert decide(facts) == Release()


def test_a_message_that_is_gone_is_missed_although_the_cursor_has_passed_it(
    session: psycopg.Connection, run: RunInfo, lease: Lease
) -> None:
    send(session, run, LEFT, 1, 2, 3)
    end(session, run, LEFT)
    end(session, run, RIGHT)
    process(session, run, lease, LEFT, 3)
    session.execute("DELETE FROM tidegate.message WHERE seq = 2")
    assert decide(facts_of(session, run, "sum/0")) == Wait((), {"map/0": (2,)})


def test_a_message_behind_what_was_declared_is_a_fault(
    session: psycopg.Connection, run: RunInfo, lease: Lease
) -> None:
    end(session, run, LEFT)
    send(session, run, LEFT, "late")
    end(session, run, RIGHT)
    process(session, run, lease, LEFT, 2)
    assert decide(facts_of(session, run, "sum/0")) == Fault({"map/0": (2,)})


def test_who_has_not_declared_is_known_too(session: psycopg.Connection, run: RunInfo) -> None:
    end(session, run, LEFT)
    assert decide(facts_of(session, run, "sum/0")) == Wait(("map/1",))


def test_a_task_that_feeds_another_twice_is_two_producers(session: psycopg.Connection) -> None:
    twice = [ChannelName("map/0", "sum/0", 0), ChannelName("map/0", "sum/0", 1)]
    run = begin_run(session, "sales", "march", twice)
    end(session, run, twice[1])
    producers = facts_of(session, run, "sum/0").producers
    assert producers == (Producer("map/0 (0)"), Producer("map/0 (1)", 0))


def test_a_release_is_made_once_and_wakes_the_task(
    session: psycopg.Connection, run: RunInfo
) -> None:
    end(session, run, LEFT)
    end(session, run, RIGHT)
    session.execute("LISTEN tidegate")
    assert released(session, "sum/0", [run.id]) == set()
    assert release(session, run, "sum/0")
    assert not release(session, run, "sum/0")
    assert released(session, "sum/0", [run.id]) == {run.id}
    assert released(session, "sum/1", [run.id]) == set()
    assert waiting(session) == []
    heard = [each.payload for each in session.notifies(timeout=0.2)]
    assert heard == [task_topic("sales", "sum/0")]


def test_a_closed_run_is_neither_looked_at_nor_released(
    session: psycopg.Connection, run: RunInfo
) -> None:
    end(session, run, LEFT)
    end(session, run, RIGHT)
    close_run(session, run, RunState.CANCELLED)
    assert waiting(session) == []
    assert not release(session, run, "sum/0")
