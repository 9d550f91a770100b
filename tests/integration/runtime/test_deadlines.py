"""Bounds of a run: a warning before, a failure after, and both say what is missing."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from os import getpid
from pathlib import Path

import pytest

from tests.integration.runtime.shop import Client, allow, ask, refuse
from tests.waiting import wait_until
from tidegate.errors import RunFailed
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.file_storage import FileStorage
from tidegate.runtime.ingestion.run_service import RunService
from tidegate.runtime.monitor.diagnosis import why_not_done
from tidegate.runtime.monitor.monitor import Monitor
from tidegate.runtime.task_graph import TaskGraph
from tidegate.settings import Settings
from tidegate.store import Notifications, RunInfo, RunState


@contextmanager
def watching(
    place: Deployment, task_graph: TaskGraph, explain: Callable[[RunInfo], str] | None = None
) -> Iterator[Monitor]:
    explain = explain or partial(why_not_done, place.database)
    with (
        Notifications(place.database) as notifications,
        Monitor(
            place.database,
            task_graph.name,
            notifications,
            explain,
            FileStorage(place.root).checksum,
            place.settings,
        ) as watch,
    ):
        yield watch


@pytest.fixture
def watch(place: Deployment, task_graph: TaskGraph) -> Iterator[Monitor]:
    with watching(place, task_graph) as watch:
        yield watch


def test_the_owner_of_the_monitor_lease_names_its_process(
    place: Deployment, task_graph: TaskGraph
) -> None:
    def leaders() -> list[str]:
        asked = "SELECT owner FROM tidegate.lease WHERE kind = 'monitor' AND owner IS NOT NULL"
        return [str(owner) for (owner,) in ask(place.database, asked)]

    explain = partial(why_not_done, place.database)
    with Notifications(place.database) as notifications:
        its = (
            place.database,
            task_graph.name,
            notifications,
            explain,
            FileStorage(place.root).checksum,
        )
        with Monitor(*its, process="monitor-1"):
            wait_until(lambda: bool(leaders()))
            (leader,) = leaders()

    assert re.fullmatch(rf"{getpid()}-monitor-1-[0-9a-f]{{12}}", leader)


def reach_deadline(place: Deployment, client: Client) -> None:
    """Let the deadline of a run pass, however long its client took so far."""
    sql = "UPDATE tidegate.run SET deadline_at = clock_timestamp() WHERE id = %s"
    ask(place.database, sql, client.id)


def test_a_run_with_missing_chunks_fails_at_its_deadline_and_names_them(
    watch: Monitor, place: Deployment, counter: RunService, tmp_path: Path
) -> None:
    client = Client(counter, "march", tmp_path, deadline=3600)
    client.sales(2, (1, 1))
    counter.end("march", "sales", chunks=4)
    reach_deadline(place, client)
    with pytest.raises(RunFailed) as failed:
        client.wait()
    assert "its deadline has passed" in failed.value.cause
    assert "source sales lacks 3 of 4 chunks: 1, 3, 4" in failed.value.cause
    assert "source items is not ended" in failed.value.cause


def test_a_run_without_a_worker_fails_at_its_deadline_and_names_the_tasks(
    watch: Monitor, place: Deployment, counter: RunService, tmp_path: Path
) -> None:
    client = Client(counter, "march", tmp_path, deadline=3600)
    client.sell()
    reach_deadline(place, client)
    with pytest.raises(RunFailed) as failed:
        client.wait()
    assert "task s1/0 has not processed" in failed.value.cause
    assert "no worker runs it" in failed.value.cause


def test_a_late_run_is_warned_of_once_with_what_is_missing_and_goes_on(
    watch: Monitor, counter: RunService, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "tidegate.runtime.monitor.monitor"):
        client = Client(counter, "march", tmp_path, warn_after=0.2)
        Client(counter, "other", tmp_path, deadline=2.5)
        wait_until(lambda: "march is late" in caplog.text)
        wait_until(lambda: counter.known("other").state is RunState.FAILED)
    warnings = [it.getMessage() for it in caplog.records if "is late" in it.getMessage()]
    assert len(warnings) == 1
    assert "source sales is not ended" in warnings[0]
    assert counter.known("march").state is RunState.OPEN
    assert client.sales(1, (1, 1))


def test_a_run_without_bounds_is_left_alone(
    watch: Monitor, counter: RunService, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Client(counter, "march", tmp_path)
    Client(counter, "other", tmp_path, deadline=0.5)
    wait_until(lambda: counter.known("other").state is RunState.FAILED)
    assert counter.known("march").state is RunState.OPEN
    assert "march" not in caplog.text


def test_another_watch_takes_over_when_the_first_is_closed(
    watch: Monitor, place: Deployment, task_graph: TaskGraph, counter: RunService, tmp_path: Path
) -> None:
    wait_until(lambda: watch.is_leading)
    with watching(place, task_graph) as second:
        assert not second.is_leading
        watch.close()
        wait_until(lambda: second.is_leading)
        client = Client(counter, "march", tmp_path, deadline=0.1)
        with pytest.raises(RunFailed):
            client.wait()


# --- a failing monitor -----------------------------------------------------------------------

DISK_FULL, INTERNAL_ERROR = "53100", "XX000"


@pytest.mark.parametrize("code", [DISK_FULL, INTERNAL_ERROR])
def test_a_watch_whose_writes_are_refused_goes_on_by_itself_when_they_are_not_any_more(
    code: str,
    watch: Monitor,
    place: Deployment,
    counter: RunService,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = Client(counter, "march", tmp_path, deadline=0.1)
    refuse(place.database, "run", code)
    wait_until(lambda: "refused" in caplog.text)
    assert watch.is_alive
    allow(place.database)
    with pytest.raises(RunFailed):
        client.wait()


@pytest.mark.parametrize("error", [ZeroDivisionError(), SystemExit()])
def test_a_failing_monitor_lets_another_take_over(
    error: BaseException,
    place: Deployment,
    task_graph: TaskGraph,
    counter: RunService,
    tmp_path: Path,
) -> None:
    def broken(_: RunInfo) -> str:
        raise error

    place = replace(place, settings=Settings(monitor_seconds=0.2))
    with watching(place, task_graph, broken) as first:
        wait_until(lambda: first.is_leading)
        with watching(place, task_graph) as second:
            client = Client(counter, "march", tmp_path, deadline=0.1)
            with pytest.raises(RunFailed):
                client.wait()
            assert second.is_leading
            assert not first.is_leading
            assert first.is_alive == isinstance(error, Exception)
