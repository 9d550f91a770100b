"""The monitor on a real store: END passes a sharded aggregate when all is there, and not before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from time import sleep

import pytest

from tests.integration.runtime.shop import BOUND, Client, ask, rows, shop
from tests.waiting import wait_until
from tidegate.errors import RunFailed, RunTimeout
from tidegate.runtime import service as services
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.file_storage import Storage
from tidegate.runtime.ingestion.run_service import Server
from tidegate.runtime.monitor.diagnosis import why_not_done
from tidegate.runtime.monitor.monitor import NET, Watch
from tidegate.runtime.service import Service, serving
from tidegate.runtime.task_graph import HEAD
from tidegate.spark import Session
from tidegate.store import RunState, Wakeups, run_facts


@pytest.fixture
def unwatched(
    place: Deployment, spark: Session, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Service]:
    """The shop without a monitor, and without a sweeper, which would remove what is looked at."""
    monkeypatch.setattr(services, "Watch", lambda *_, **__: nullcontext())
    monkeypatch.setattr(services, "Sweeper", lambda *_: nullcontext())
    with serving(place, shop(), spark) as service:
        yield service


@contextmanager
def watching(place: Deployment, service: Service) -> Iterator[None]:
    explain = partial(why_not_done, place.database)
    with (
        Wakeups(place.database) as wakeups,
        Watch(place.database, service.assembly.name, wakeups, explain, Storage(place.root).seal),
    ):
        yield


def waiting_at(place: Deployment, service: Service, client: Client) -> list[str]:
    """The monitored tasks of a run at which only END is left, once there are no others."""
    run = service.server.known(client.run)
    monitored = service.assembly.monitored

    def is_there() -> bool:
        facts = place.database.transact(lambda c: run_facts(c, run))
        lanes = [lane for lane in facts.lanes if lane.to_task in monitored]
        return all(lane.declared is not None and lane.cursor == lane.declared for lane in lanes)

    wait_until(is_there, BOUND)
    return list(monitored)


def released_at(place: Deployment, client: Client) -> set[object]:
    asked = "SELECT task FROM tidegate.release WHERE run_id = %s"
    return {task for (task,) in ask(place.database, asked, client.id)}


def used_lane(place: Deployment, service: Service, client: Client) -> tuple[int, str]:
    """A lane into a monitored task that has a message, and that task."""
    ((lane, task),) = ask(
        place.database,
        """
        SELECT id, to_task FROM tidegate.lane
        WHERE run_id = %s AND to_task = ANY(%s) AND declared > 0
        """,
        client.id,
        list(service.assembly.monitored),
    )
    assert isinstance(lane, int)
    return lane, str(task)


def test_without_a_monitor_no_run_passes_a_sharded_aggregate_and_with_one_it_does(
    unwatched: Service, place: Deployment, spark: Session, tmp_path: Path
) -> None:
    client = Client(unwatched.server, "march", tmp_path)
    client.sell()
    waiting_at(place, unwatched, client)
    with pytest.raises(RunTimeout):
        unwatched.server.wait("march", 2.0)
    assert released_at(place, client) == set()
    why = why_not_done(place.database, unwatched.server.known("march"))
    assert "the monitor has not released task b2/0 to pass on END" in why
    assert "nobody is the monitor" in why
    with watching(place, unwatched):
        assert rows(spark, place, client.wait()["best"]) == [("tea", 7000)]


def test_a_shard_without_work_is_released_like_any_other(
    unwatched: Service, place: Deployment, tmp_path: Path
) -> None:
    client = Client(unwatched.server, "march", tmp_path)
    client.sell()
    tasks = waiting_at(place, unwatched, client)
    used_lane(place, unwatched, client)  # one item has one shard: the others have no work
    with watching(place, unwatched):
        client.wait()
    assert released_at(place, client) == set(tasks)
    assert len(tasks) > 1


def test_a_message_that_is_missing_holds_the_run_and_is_named(
    unwatched: Service, place: Deployment, spark: Session, tmp_path: Path
) -> None:
    client = Client(unwatched.server, "march", tmp_path)
    client.sell()
    waiting_at(place, unwatched, client)
    lane, task = used_lane(place, unwatched, client)
    taken = (
        "DELETE FROM tidegate.message WHERE lane_id = %s AND seq = 1 RETURNING id, kind, payload"
    )
    ((id, kind, payload),) = ask(place.database, taken, lane)
    with watching(place, unwatched):
        sleep(2 * NET)
        assert task not in released_at(place, client)
        assert unwatched.server.known("march").state is RunState.OPEN
        why = why_not_done(place.database, unwatched.server.known("march"))
        assert f"task {task} " in why
        assert "message 1" in why
        put_back = """
            INSERT INTO tidegate.message (lane_id, seq, id, kind, payload)
            VALUES (%s, 1, %s, %s, %s::text::jsonb)
            """
        ask(place.database, put_back, lane, id, kind, json.dumps(payload))
        assert rows(spark, place, client.wait()["best"]) == [("tea", 7000)]


def test_more_than_was_declared_fails_the_run_and_names_the_messages(
    unwatched: Service, place: Deployment, tmp_path: Path
) -> None:
    client = Client(unwatched.server, "march", tmp_path)
    client.sell()
    waiting_at(place, unwatched, client)
    lane, task = used_lane(place, unwatched, client)
    surplus = """
        WITH beyond AS (
            INSERT INTO tidegate.message (lane_id, seq, id, kind, payload)
            SELECT lane_id, seq + 2, gen_random_uuid(), kind, payload
            FROM tidegate.message WHERE lane_id = %s AND seq = 1
        )
        UPDATE tidegate.cursor SET seq = 3 WHERE lane_id = %s
        """
    ask(place.database, surplus, lane, lane)
    with watching(place, unwatched), pytest.raises(RunFailed) as failed:
        client.wait()
    assert task in failed.value.cause
    assert "never declared" in failed.value.cause
    assert ": 3" in failed.value.cause


def test_a_message_that_is_gone_before_it_was_read_fails_its_run_and_no_other(
    counter: Server, place: Deployment, spark: Session, tmp_path: Path
) -> None:
    client, other = (Client(counter, name, tmp_path) for name in ("march", "april"))
    client.sell()
    other.sell("milk")
    lost = """
        DELETE FROM tidegate.message USING tidegate.lane
        WHERE lane.id = lane_id AND run_id = %s AND from_task = %s AND seq = 1 AND kind = 'event'
        """
    ask(place.database, lost, client.id, HEAD)
    with serving(place, shop(), spark):
        with pytest.raises(RunFailed) as failed:
            client.wait()
        assert "message 1 of march" in failed.value.cause
        assert "is gone" in failed.value.cause
        assert rows(spark, place, other.wait()["best"]) == [("milk", 7000)]
