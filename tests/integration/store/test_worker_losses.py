"""Lost workers are attributed to the run that each processed alone, and to no other."""

from __future__ import annotations

import psycopg

from tidegate.dataflow import Event
from tidegate.store import ChannelName, Lease, RunInfo, begin_run, message_id, task_topic
from tidegate.store.core.leases import expire, release
from tidegate.store.runs.channels import append
from tidegate.store.runs.worker_losses import (
    TaskAcquisition,
    acquire_task,
    begin_isolation,
    drop_isolations,
    end_isolation,
    report_loss,
)

FIRST, SECOND = ChannelName("head", "s1"), ChannelName("head", "s2")


def begin(session: psycopg.Connection, name: str, *channels: ChannelName) -> RunInfo:
    """A run with one unread message on each of these channels."""
    run = begin_run(session, "shop", name, [FIRST, SECOND])
    for channel in channels:
        with session.transaction():
            append(session, run, channel, [(message_id(channel.to_task), Event(1, run.key))])
    return run


def take(session: psycopg.Connection, worker: str, task: str = "s1") -> TaskAcquisition:
    wanted = Lease("task", task_topic("shop", task), worker, 0, 3600)
    taken = acquire_task(session, "shop", task, wanted)
    assert taken is not None
    return taken


def lose(session: psycopg.Connection, *held: TaskAcquisition) -> None:
    for taken in held:
        assert expire(session, taken.lease)


def test_a_task_that_was_released_makes_no_suspects(session: psycopg.Connection) -> None:
    begin(session, "march", FIRST)
    release(session, take(session, "ann").lease)

    taken = take(session, "ben")
    assert (taken.lost_worker, taken.isolated_runs, taken.lost_with) == (None, {}, ())


def test_a_task_that_its_own_worker_takes_again_makes_no_suspects(
    session: psycopg.Connection,
) -> None:
    begin(session, "march", FIRST)
    lose(session, take(session, "ann"))

    assert take(session, "ann").isolated_runs == {}


def test_a_lost_worker_makes_suspects_of_the_runs_with_unread_messages_at_its_task(
    session: psycopg.Connection,
) -> None:
    at_first, _, both = (
        begin(session, "a", FIRST),
        begin(session, "b", SECOND),
        begin(session, "c", FIRST, SECOND),
    )
    lose(session, take(session, "ann"))

    taken = take(session, "ben")
    assert taken.lost_worker == "ann"
    assert taken.isolated_runs == {at_first.id: 0, both.id: 0}
    assert taken.lost_with == ()


def test_a_worker_that_is_lost_under_a_mark_counts_against_that_run_alone(
    session: psycopg.Connection,
) -> None:
    runs_to_fail, other = begin(session, "bad", FIRST), begin(session, "good", FIRST)
    lose(session, take(session, "w1"))
    held = take(session, "w2")
    begin_isolation(session, "w2", runs_to_fail.id, ["s1"])
    report_loss(session, "w2", "Java ended\0")
    lose(session, held)

    taken = take(session, "w3")
    (lost,) = taken.lost_with
    assert (lost.run, lost.name, lost.task, lost.losses) == (runs_to_fail.id, "bad", "s1", 1)
    assert lost.error == r"Java ended\0"
    assert taken.isolated_runs == {runs_to_fail.id: 1, other.id: 0}


def test_a_loss_is_counted_once_however_many_tasks_the_worker_had(
    session: psycopg.Connection,
) -> None:
    run, other = begin(session, "bad", FIRST, SECOND), begin(session, "good", SECOND)
    lose(session, take(session, "w1"))
    held = take(session, "w2"), take(session, "w2", "s2")
    begin_isolation(session, "w2", run.id, ["s1"])
    lose(session, *held)

    first, second = take(session, "w3"), take(session, "w3", "s2")
    assert [it.losses for it in first.lost_with] == [1]
    assert second.lost_with == ()
    assert second.isolated_runs == {run.id: 1}, "the cause is known, so nothing else is suspected"
    assert other.id not in first.isolated_runs


def test_a_loss_is_counted_once_however_many_tasks_are_marked(
    session: psycopg.Connection,
) -> None:
    run = begin(session, "bad", FIRST, SECOND)
    lose(session, take(session, "w1"))
    held = take(session, "w2"), take(session, "w2", "s2")
    begin_isolation(session, "w2", run.id, ["s1", "s2"])
    lose(session, *held)

    assert {it.losses for it in take(session, "w3").lost_with} == {1}


def test_marks_of_several_runs_count_against_none_of_them(session: psycopg.Connection) -> None:
    first, second = begin(session, "a", FIRST), begin(session, "b", FIRST)
    lose(session, take(session, "w1"))
    held = take(session, "w2")
    begin_isolation(session, "w2", first.id, ["s1"])
    begin_isolation(session, "w2", second.id, ["s1"])
    lose(session, held)

    taken = take(session, "w3")
    assert taken.lost_with == ()
    assert taken.isolated_runs == {first.id: 0, second.id: 0}


def test_losses_in_several_tasks_of_a_run_add_up(session: psycopg.Connection) -> None:
    run = begin(session, "bad", FIRST, SECOND)
    lose(session, take(session, "w0"), take(session, "w0", "s2"))
    for number, task in enumerate(("s1", "s2", "s1"), start=1):
        worker = f"w{number}"
        held = take(session, worker), take(session, worker, "s2")
        begin_isolation(session, worker, run.id, [task])
        lose(session, *held)

    (lost,) = take(session, "last").lost_with
    assert lost.losses == 3


def test_a_run_that_a_worker_has_survived_is_no_suspect_any_more(
    session: psycopg.Connection,
) -> None:
    run = begin(session, "slow", FIRST)
    lose(session, take(session, "w1"))
    held = take(session, "w2")
    begin_isolation(session, "w2", run.id, ["s1"])
    end_isolation(session, "w2", run.id, ["s1"])
    release(session, held.lease)

    assert take(session, "w3").isolated_runs == {}


def test_a_worker_that_goes_on_under_another_name_has_lost_nothing(
    session: psycopg.Connection,
) -> None:
    run = begin(session, "slow", FIRST)
    lose(session, take(session, "w1"))
    held = take(session, "w2")
    begin_isolation(session, "w2", run.id, ["s1"])
    drop_isolations(session, "w2")
    lose(session, held)

    taken = take(session, "w2-again")
    assert taken.lost_with == ()
    assert taken.isolated_runs == {run.id: 0}
