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
from tidegate.runtime.file_storage import FileStorage
from tidegate.runtime.ingestion.run_service import RunService
from tidegate.runtime.monitor.diagnosis import why_not_done
from tidegate.runtime.monitor.monitor import Monitor
from tidegate.runtime.service import PipelineService, serve
from tidegate.runtime.task_graph import HEAD
from tidegate.settings import DEFAULTS
from tidegate.spark import Session
from tidegate.store import Notifications, RunState, run_facts


@pytest.fixture
def unwatched(
    place: Deployment, spark: Session, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PipelineService]:
    """The shop without a monitor, and without a sweeper, which would remove what is looked at."""
    monkeypatch.setattr(services, "Monitor", lambda *_, **__: nullcontext())
    monkeypatch.setattr(services, "Sweeper", lambda *_: nullcontext())
    with serve(place, shop(), spark) as service:
        yield service


@contextmanager
def watching(place: Deployment, service: PipelineService) -> Iterator[None]:
    explain = partial(why_not_done, place.database)
    with (
        Notifications(place.database) as notifications,
        Monitor(
            place.database,
            service.task_graph.name,
            notifications,
            explain,
            FileStorage(place.root).checksum,
        ),
    ):
        yield


def waiting_at(place: Deployment, service: PipelineService, client: Client) -> list[str]:
    """The monitored tasks of a run at which only END is left, once there are no others."""
    run = service.server.known(client.run)
    monitored = service.task_graph.monitored

    def is_there() -> bool:
        facts = place.database.transact(lambda c: run_facts(c, run))
        channels = [channel for channel in facts.channels if channel.to_task in monitored]
        return all(
            channel.declared is not None and channel.cursor == channel.declared
            for channel in channels
        )

    wait_until(is_there, BOUND)
    return list(monitored)


def released_at(place: Deployment, client: Client) -> set[object]:
    asked = "SELECT task FROM tidegate.release WHERE run_id = %s"
    return {task for (task,) in ask(place.database, asked, client.id)}


def used_channel(place: Deployment, service: PipelineService, client: Client) -> tuple[int, str]:
    """A channel into a monitored task that has a message, and that task."""
    ((channel, task),) = ask(
        place.database,
        """
        SELECT id, to_task FROM tidegate.channel
        WHERE run_id = %s AND to_task = ANY(%s) AND declared > 0
        """,
        client.id,
        list(service.task_graph.monitored),
    )
    assert isinstance(channel, int)
    return channel, str(task)


def test_without_a_monitor_no_run_passes_a_sharded_aggregate_and_with_one_it_does(
    unwatched: PipelineService, place: Deployment, spark: Session, tmp_path: Path
) -> None:
    client = Client(unwatched.server, "march", tmp_path)
    client.sell()
    waiting_at(place, unwatched, client)
    with pytest.raises(RunTimeout):
        unwatched.server.wait("march", 2.0)
    assert released_at(place, client) == set()
    why = why_not_done(place.database, unwatched.server.known("march"))
    assert "the monitor has not released task b2/0 to pass on END" in why
    assert "no monitor runs" in why
    with watching(place, unwatched):
        assert rows(spark, place, client.wait()["best"]) == [("tea", 7000)]


def test_a_shard_without_work_is_released_like_any_other(
    unwatched: PipelineService, place: Deployment, tmp_path: Path
) -> None:
    client = Client(unwatched.server, "march", tmp_path)
    client.sell()
    tasks = waiting_at(place, unwatched, client)
    used_channel(place, unwatched, client)  # one item has one shard: the others have no work
    with watching(place, unwatched):
        client.wait()
    assert released_at(place, client) == set(tasks)
    assert len(tasks) > 1


def test_a_message_that_is_missing_holds_the_run_and_is_named(
    unwatched: PipelineService, place: Deployment, spark: Session, tmp_path: Path
) -> None:
    client = Client(unwatched.server, "march", tmp_path)
    client.sell()
    waiting_at(place, unwatched, client)
    channel, task = used_channel(place, unwatched, client)
    taken = (
        "DELETE FROM tidegate.message WHERE channel_id = %s AND seq = 1 RETURNING id, kind, payload"
    )
    ((id, kind, payload),) = ask(place.database, taken, channel)
    with watching(place, unwatched):
        sleep(2 * DEFAULTS.monitor_seconds)
        assert task not in released_at(place, client)
        assert unwatched.server.known("march").state is RunState.OPEN
        why = why_not_done(place.database, unwatched.server.known("march"))
        assert f"task {task} " in why
        assert "message 1" in why
        put_back = """
            INSERT INTO tidegate.message (channel_id, seq, id, kind, payload)
            VALUES (%s, 1, %s, %s, %s::text::jsonb)
            """
        ask(place.database, put_back, channel, id, kind, json.dumps(payload))
        assert rows(spark, place, client.wait()["best"]) == [("tea", 7000)]


def test_more_than_was_declared_fails_the_run_and_names_the_messages(
    unwatched: PipelineService, place: Deployment, tmp_path: Path
) -> None:
    client = Client(unwatched.server, "march", tmp_path)
    client.sell()
    waiting_at(place, unwatched, client)
    channel, task = used_channel(place, unwatched, client)
    surplus = """
        WITH beyond AS (
            INSERT INTO tidegate.message (channel_id, seq, id, kind, payload)
            SELECT channel_id, seq + 2, gen_random_uuid(), kind, payload
            FROM tidegate.message WHERE channel_id = %s AND seq = 1
        )
        UPDATE tidegate.cursor SET seq = 3 WHERE channel_id = %s
        """
    ask(place.database, surplus, channel, channel)
    with watching(place, unwatched), pytest.raises(RunFailed) as failed:
        client.wait()
    assert task in failed.value.cause
    assert "never declared" in failed.value.cause
    assert ": 3" in failed.value.cause


def test_a_lost_message_fails_its_run_and_no_other(
    counter: RunService, place: Deployment, spark: Session, tmp_path: Path
) -> None:
    client, other = (Client(counter, name, tmp_path) for name in ("march", "april"))
    client.sell()
    other.sell("milk")
    lost = """
        DELETE FROM tidegate.message USING tidegate.channel
        WHERE channel.id = channel_id AND run_id = %s AND from_task = %s AND seq = 1 AND kind =
        'event'
        """
    ask(place.database, lost, client.id, HEAD)
    with serve(place, shop(), spark):
        with pytest.raises(RunFailed) as failed:
            client.wait()
        assert "message 1 of march" in failed.value.cause
        assert "is gone" in failed.value.cause
        assert rows(spark, place, other.wait()["best"]) == [("milk", 7000)]
