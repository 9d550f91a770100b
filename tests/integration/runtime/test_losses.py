"""What a service loses in the middle of a run: its database, its leases, its workers."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack, suppress
from pathlib import Path
from time import monotonic, sleep

import pytest

from tests.integration.runtime.jobs import Jobs
from tests.integration.runtime.shop import BOUND, Client, ask, rows, shop
from tests.waiting import wait_until
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.file_storage import FileStorage
from tidegate.runtime.monitor.sweeper import sweep
from tidegate.runtime.service import serve
from tidegate.runtime.worker.task_worker import WORKER
from tidegate.spark import Session
from tidegate.store import EmbeddedPostgres, publications

TEA = [("tea", 7000)]


def published_once(place: Deployment, client: Client) -> bool:
    found = place.database.transact(publications)
    return found == {f"{client.run}#{client.id}": 1}


def sold(client: Client, place: Deployment, spark: Session) -> list[tuple[object, ...]]:
    return rows(spark, place, client.wait()["best"])


# --- the database ----------------------------------------------------------------------------


def keep_down(server: EmbeddedPostgres, seconds: float) -> None:
    """Kill the server whenever it is there."""
    until = monotonic() + seconds
    while monotonic() < until:
        pid = server.pid
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        sleep(0.01)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("seconds", [2, 30])
def test_a_run_goes_on_by_itself_when_the_database_was_gone_for_a_while(
    seconds: int,
    jobs: Jobs,
    place: Deployment,
    server: EmbeddedPostgres,
    spark: Session,
    tmp_path: Path,
) -> None:
    with serve(place, shop(), spark) as service:
        client = Client(service.server, "march", tmp_path)
        client.items(1, (1, "tea"))
        jobs.goes_on.clear()
        client.sales(1, (1, 7))
        client.end()
        assert jobs.reached.wait(BOUND)
        jobs.goes_on.set()
        keep_down(server, seconds)
        assert sold(client, place, spark) == TEA
        after = Client(service.server, "after", tmp_path)
        after.sell()
        assert sold(after, place, spark) == TEA


# --- leases ----------------------------------------------------------------------------------


def steal(place: Deployment, kind: str, keys: str, seconds: float) -> None:
    """Give leases to somebody who does nothing with them."""
    stolen = ask(
        place.database,
        """
        UPDATE tidegate.lease
        SET owner = 'thief', epoch = epoch + 1,
            expires_at = clock_timestamp() + make_interval(secs => %s)
        WHERE kind = %s AND key LIKE %s
        RETURNING key
        """,
        seconds,
        kind,
        keys,
    )
    assert stolen


@pytest.mark.parametrize("keys", ["shop/s1/0", "shop/%"])
def test_a_task_whose_lease_was_stolen_under_its_job_is_taken_again_and_publishes_once(
    keys: str, jobs: Jobs, place: Deployment, spark: Session, tmp_path: Path
) -> None:
    with serve(place, shop(), spark) as service:
        client = Client(service.server, "march", tmp_path)
        jobs.goes_on.clear()
        client.sell()
        assert jobs.reached.wait(BOUND)
        steal(place, "task", keys, seconds=1.5)
        jobs.goes_on.set()
        assert sold(client, place, spark) == TEA
        assert published_once(place, client)


def test_a_worker_that_was_taken_for_dead_commits_nothing_and_begins_another_life(
    jobs: Jobs, place: Deployment, spark: Session, tmp_path: Path
) -> None:
    with serve(place, shop(), spark) as service:
        client = Client(service.server, "march", tmp_path)
        jobs.goes_on.clear()
        client.sell()
        assert jobs.reached.wait(BOUND)
        expire = "UPDATE tidegate.lease SET expires_at = clock_timestamp() WHERE kind = %s"
        wrong_file = Path(place.root, "batches", worker_of(place), "x", f"run={client.id}", "f")
        wrong_file.parent.mkdir(parents=True)
        wrong_file.touch()
        wait_until(lambda: ask(place.database, expire, WORKER) == [] and _fenced(place))
        jobs.goes_on.set()
        assert sold(client, place, spark) == TEA
        assert published_once(place, client)


def worker_of(place: Deployment) -> str:
    ((name,),) = ask(
        place.database,
        "SELECT key FROM tidegate.lease WHERE kind = %s AND owner = key",
        WORKER,
    )
    return str(name)


def _fenced(place: Deployment) -> bool:
    """Sweep, and see whether a worker's lease was taken by it."""
    sweep(place.database, FileStorage(place.root))
    return bool(
        ask(
            place.database,
            "SELECT key FROM tidegate.lease WHERE kind = %s AND owner <> key",
            WORKER,
        )
    )


# --- workers ---------------------------------------------------------------------------------


def test_a_run_that_one_service_began_is_completed_by_the_next(
    place: Deployment, spark: Session, tmp_path: Path
) -> None:
    with serve(place, shop(), spark) as service:
        client = Client(service.server, "march", tmp_path)
        client.items(1, (1, "tea"))
        client.sales(1, (1, 3))
        service.server.end("march", "items", chunks=1)
    with serve(place, shop(), spark) as service:
        client.server = service.server
        client.sales(2, (1, 4))
        client.end()
        assert sold(client, place, spark) == TEA
        assert published_once(place, client)


def test_a_service_that_is_closed_in_the_middle_of_a_job_hands_its_tasks_to_another(
    jobs: Jobs, place: Deployment, spark: Session, tmp_path: Path
) -> None:
    with serve(place, shop(), spark) as staying:
        with ExitStack() as leaving:
            first = leaving.enter_context(serve(place, shop(), spark))
            client = Client(first.server, "march", tmp_path)
            jobs.goes_on.clear()
            client.sell()
            assert jobs.reached.wait(BOUND)
            jobs.goes_on.set()
        client.server = staying.server
        assert sold(client, place, spark) == TEA
        assert published_once(place, client)
