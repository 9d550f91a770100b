"""The computations of the coffee demo; `make demo` runs it with real processes."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.waiting import wait_until
from tidegate.store import ChannelStatus, Owner, RunFacts, RunInfo, RunState
from tidegate_examples.coffee.demo.answers import Answers, differing
from tidegate_examples.coffee.demo.clients import Client
from tidegate_examples.coffee.demo.progress import (
    Progress,
    Released,
    have_leases_expired,
    progress,
    released,
)
from tidegate_examples.coffee.demo.workers import WorkerProcess


def channel(to_task: str, sent: int, declared: int | None, cursor: int) -> ChannelStatus:
    return ChannelStatus("s1", to_task, 0, sent, declared, cursor, None)


def facts(
    *channels: ChannelStatus,
    released: frozenset[str] = frozenset(),
    release_points: frozenset[str] = frozenset(),
    owner: float = 5.0,
) -> RunFacts:
    run = RunInfo(1, "coffee", "town", 1, RunState.OPEN)
    owners = {it.to_task: Owner("w", 1, owner) for it in channels}
    return RunFacts(run, datetime.now(UTC), (), channels, released, owners, release_points)


def test_a_task_is_done_when_it_has_passed_the_end_of_all_its_channels() -> None:
    seen = facts(channel("s2", 3, 2, 3), channel("s3", 3, 2, 3), channel("s3", 1, None, 1))
    assert progress(seen) == Progress(tasks=2, done=1, messages=5)


def test_only_monitored_tasks_count_as_released() -> None:
    seen = facts(
        channel("b4", 3, 2, 3),
        channel("s2", 9, 8, 9),
        released=frozenset({"b4"}),
        release_points=frozenset({"b4", "b5"}),
    )
    assert released(seen) == Released(1, 2, declared=2, processed=2)


def test_leases_have_expired_when_every_lease_has() -> None:
    assert have_leases_expired(facts(channel("s2", 1, None, 0), owner=-0.1))
    assert not have_leases_expired(facts(channel("s2", 1, None, 0), owner=0.1))
    assert not have_leases_expired(facts())


def test_answers_differ_by_how_often_a_row_occurs_and_not_by_their_order() -> None:
    ours: Answers = {"q1": [(1,), (2,), (2,)], "q2": [(1,), (2,)], "q3": []}
    assert differing(ours, {"q1": [(1,), (2,)], "q2": [(2,), (1,)], "q3": []}) == ["q1"]


def test_a_client_takes_its_sources_in_turn() -> None:
    client = Client("town", {"sales": ["s1", "s2"], "items": ["i1"]})
    assert [file for _, _, file in client.numbered()] == ["s1", "i1", "s2"]
    assert client.chunks == 3


def test_a_worker_that_ends_unexpectedly_ends_the_demo_with_its_output(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no more coffee')"]
    with WorkerProcess(1, command, tmp_path / "log") as worker:
        wait_until(lambda: not worker.is_alive)
        with pytest.raises(SystemExit, match="no more coffee"):
            worker.check_alive()


def test_a_worker_has_ended_after_the_block(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    with WorkerProcess(1, command, tmp_path / "log") as worker:
        worker.check_alive()
        worker.kill()
    assert not worker.is_alive
