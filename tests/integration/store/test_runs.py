"""Runs: begun once, closed once with the first cause, and everybody who waits hears of it."""

from __future__ import annotations

from uuid import uuid4

import psycopg
import pytest

from tidegate.errors import IdempotencyConflict, RunExists
from tidegate.store import (
    ChannelName,
    RunState,
    begin_run,
    close_run,
    find_run,
    open_runs,
    overdue_runs,
    plan_of,
    run_topic,
    task_topic,
)

CHANNELS = [ChannelName("head", "s1"), ChannelName("s1", "s2")]


def heard(session: psycopg.Connection) -> list[str]:
    return [each.payload for each in session.notifies(timeout=0.2)]


def test_a_run_keeps_the_plan_it_was_begun_with(session: psycopg.Connection) -> None:
    run = begin_run(session, "sales", "march", CHANNELS, plan="the plan")
    assert plan_of(session, run) == "the plan"


def test_the_open_runs_of_a_pipeline_are_listed_the_oldest_first(
    session: psycopg.Connection,
) -> None:
    march, april, may = (begin_run(session, "sales", name, CHANNELS) for name in ("3", "4", "5"))
    begin_run(session, "stores", "3", CHANNELS)
    close_run(session, april, RunState.CANCELLED)
    assert open_runs(session, "sales") == [march, may]


def test_the_same_request_begins_one_run_even_when_that_is_closed_meanwhile(
    session: psycopg.Connection,
) -> None:
    request = uuid4()
    run = begin_run(session, "sales", "march", CHANNELS, request=request)
    assert begin_run(session, "sales", "march", CHANNELS, request=request) == run
    with pytest.raises(RunExists):
        begin_run(session, "sales", "march", CHANNELS, request=uuid4())
    close_run(session, run, RunState.CANCELLED)
    assert begin_run(session, "sales", "march", CHANNELS, request=request).id == run.id


def test_the_same_request_with_another_body_begins_nothing_whatever_it_names(
    session: psycopg.Connection,
) -> None:
    request = uuid4()
    run = begin_run(session, "sales", "march", CHANNELS, request=request, body="a digest")
    assert begin_run(session, "sales", "march", CHANNELS, request=request, body="a digest") == run
    for name in ("march", "april"):
        with pytest.raises(IdempotencyConflict) as refused:
            begin_run(session, "sales", name, CHANNELS, request=request, body="another")
        assert refused.value.run == "march"
    assert open_runs(session, "sales") == [run]


def test_a_run_that_was_begun_before_bodies_were_stored_is_found_by_its_request(
    session: psycopg.Connection,
) -> None:
    request = uuid4()
    run = begin_run(session, "sales", "march", CHANNELS, request=request)
    assert begin_run(session, "sales", "march", CHANNELS, request=request, body="a digest") == run


def test_a_run_past_its_deadline_is_overdue_until_it_is_closed(
    session: psycopg.Connection,
) -> None:
    late = begin_run(session, "sales", "late", CHANNELS, deadline=0)
    begin_run(session, "sales", "in time", CHANNELS, deadline=3600)
    begin_run(session, "sales", "unbounded", CHANNELS)
    assert overdue_runs(session, "sales") == [late]
    close_run(session, late, RunState.FAILED, "too late")
    assert overdue_runs(session, "sales") == []


def test_the_first_cause_of_a_failure_stays(session: psycopg.Connection) -> None:
    run = begin_run(session, "sales", "march", CHANNELS)
    assert close_run(session, run, RunState.FAILED, "disk full")
    assert not close_run(session, run, RunState.FAILED, "failed three times")
    found = find_run(session, "sales", "march")
    assert found is not None
    assert (found.state, found.cause) == (RunState.FAILED, "disk full")


def test_closing_tells_all_tasks_of_the_run_and_those_who_wait_once(
    session: psycopg.Connection,
) -> None:
    run = begin_run(session, "sales", "march", CHANNELS)
    session.execute("LISTEN tidegate")
    close_run(session, run, RunState.CANCELLED)
    close_run(session, run, RunState.CANCELLED)
    topics = {task_topic("sales", "s1"), task_topic("sales", "s2"), run_topic("sales")}
    assert [set(payload.split("\n")) for payload in heard(session)] == [topics]
