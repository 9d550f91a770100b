"""A cutover under fire: readers notice nothing, and the index is what the table is, row by row."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from time import monotonic

import psycopg
import pytest

from tests.crash.cutover import reindex
from tests.integration.conftest import (  # noqa: F401  fixtures
    database,
    new_database,
    server,
    template,
    temporary_folder,
    url,
)
from tests.integration.cutover.conftest import Shop, shop  # noqa: F401  fixtures
from tests.waiting import wait_until
from tidegate.cutover import CutoverRequest, indexes_of, retire, reverse
from tidegate.cutover.values import Cutover
from tidegate.faults import VARIABLE
from tidegate.flows import FlowState
from tidegate.flows.client import FlowRun, start_flow

LEASE = 2.0
BOUND = 240.0
ROWS = 4000
CLIENT = "a client"
STALENESS = 10.0
"""Seconds: generous, for machines that are busy with other things; what is measured is printed."""


@dataclass
class Hall:
    """Workers in processes of their own, and cutovers."""

    shop: Shop
    folder: Path
    left: ExitStack
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def hire(self, crash_at: str = "") -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tidegate", "flow", "worker", "tests.crash.cutover"]
        command += ["--deployment", str(self.folder), "--database", self.shop.url]
        command += ["--lease", str(LEASE), "--threads", "4"]
        environment = {**os.environ, VARIABLE: crash_at} if crash_at else dict(os.environ)
        with (self.folder / f"worker-{len(self.workers)}.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        self.left.callback(process.wait)
        self.left.callback(process.kill)
        self.workers.append(process)
        return process

    def said(self) -> str:
        return "\n".join(it.read_text()[-3000:] for it in sorted(self.folder.glob("*.log")))

    def begin(self, index: str) -> FlowRun:
        return start_flow(self.shop.database, reindex.flow, CutoverRequest(index), key=index)

    def finish(self, run: FlowRun) -> Cutover:
        deadline = monotonic() + BOUND
        wait_until(lambda: self.is_over(run) or monotonic() > deadline, 2 * BOUND)
        assert self.is_over(run), self.account(run)
        found = run.result("finish")
        assert isinstance(found, Cutover)
        return found

    def is_over(self, run: FlowRun) -> bool:
        state = run.status().state
        assert state not in {FlowState.FAILED, FlowState.CANCELED}, self.account(run)
        return state is FlowState.COMPLETED

    def account(self, run: FlowRun) -> str:
        return "\n".join([str(run.status()), *map(str, run.inspect().steps), self.said()])

    def state(self, run: FlowRun, key: str) -> str | None:
        return run.inspect().state[key].json

    def progress(self, run: FlowRun, step: str) -> int:
        return next(it.succeeded for it in run.inspect().steps if it.name == step)

    def wait_fresh(self, index: str) -> None:
        def fresh() -> bool:
            (found,) = (it for it in indexes_of(self.shop.database, reindex) if it.index == index)
            return found.pending == 0

        wait_until(fresh, BOUND)


@pytest.fixture
def hall(shop: Shop) -> Iterator[Hall]:  # noqa: F811  a fixture
    with temporary_folder() as folder, ExitStack() as left:
        yield Hall(shop, folder, left)


@dataclass
class Traffic:
    """What happens at the same time, on threads; the first failure of any is raised at the end."""

    url: str
    stopped: Event = field(default_factory=Event)
    errors: list[BaseException] = field(default_factory=list)
    threads: list[Thread] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    stale: list[float] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)

    def start(self, work: Callable[[psycopg.Connection], None]) -> None:
        def loop() -> None:
            try:
                with psycopg.connect(
                    self.url, autocommit=True, application_name=CLIENT
                ) as connection:
                    while not self.stopped.is_set():
                        work(connection)
            except BaseException as error:  # noqa: BLE001  told at the end
                self.errors.append(error)

        thread = Thread(target=loop, daemon=True)
        self.threads.append(thread)
        thread.start()

    def stop(self) -> None:
        self.stopped.set()
        for thread in self.threads:
            thread.join(60)

    def check(self) -> None:
        if self.errors:
            raise self.errors[0]


@contextmanager
def traffic(shop: Shop, seed: int) -> Iterator[Traffic]:  # noqa: F811  not the fixture
    going = Traffic(shop.url)
    for number in range(3):
        going.start(_writer(going, random.Random(seed + number), number))
    going.start(_reader(going))
    try:
        yield going
    finally:
        going.stop()
    going.check()


CHANGES = {
    "insert": "INSERT INTO shop.articles (id, title, body) VALUES (%(new)s, 'fresh', 'of rivers')",
    "update": "UPDATE shop.articles SET title = %(title)s, price = %(price)s WHERE id = %(at)s",
    "delete": "DELETE FROM shop.articles WHERE id = %(at)s",
    "key": "UPDATE shop.articles SET id = %(new)s WHERE id = %(at)s",
    "back": "INSERT INTO shop.articles (id, title) VALUES (%(at)s, 'back') ON CONFLICT DO NOTHING",
}


def _writer(
    going: Traffic, chance: random.Random, number: int
) -> Callable[[psycopg.Connection], None]:
    """Inserts, updates, deletes and changes of keys; some transactions are long, some roll back."""
    new = iter(range(100_000 * (number + 1), 100_000 * (number + 2)))

    def change(connection: psycopg.Connection) -> None:
        kind = chance.choice([*CHANGES, "update"])
        given = {"new": next(new), "at": chance.randrange(1, ROWS), "price": chance.randrange(99)}
        connection.execute(CHANGES[kind].encode(), {**given, "title": f"v{chance.random()}"})
        going.counts[kind] = going.counts.get(kind, 0) + 1

    def work(connection: psycopg.Connection) -> None:
        with (
            suppress(psycopg.errors.DeadlockDetected),
            connection.transaction(force_rollback=chance.random() < 0.1),
        ):
            for _ in range(chance.randrange(1, 4)):
                change(connection)
            if chance.random() < 0.05:
                going.stopped.wait(0.5)  # others commit meanwhile what was begun later
        going.stopped.wait(0.02)

    return work


def _reader(going: Traffic) -> Callable[[psycopg.Connection], None]:
    """Whoever searches always finds something."""

    def work(connection: psycopg.Connection) -> None:
        query = "SELECT count(*) FROM search.articles WHERE document @@ to_tsquery('river')"
        row = connection.execute(query).fetchone()
        assert row is not None
        assert row[0] > ROWS / 4, f"readers found {row[0]} articles"
        going.counts["read"] = going.counts.get("read", 0) + 1
        going.stopped.wait(0.01)

    return work


def _interrupt(shop: Shop) -> int:  # noqa: F811  not the fixture
    """End every connection but those of clients, and tell how many: all workers reconnect."""
    ended = shop.do(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        f" AND backend_type = 'client backend' AND application_name <> '{CLIENT}'"
    )
    return len(ended)


def _refuse(shop: Shop, index: str) -> None:  # noqa: F811  not the fixture
    shop.do(
        "CREATE FUNCTION shop.refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'the target is out of order'; END $$;"
        f" CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON search.{index}"
        " EXECUTE FUNCTION shop.refuse()"
    )


def _accept(shop: Shop, index: str) -> None:  # noqa: F811  not the fixture
    shop.do(f"DROP TRIGGER refuse ON search.{index}; DROP FUNCTION shop.refuse()")


@pytest.mark.timeout(900)
def test_readers_are_moved_while_everything_goes_wrong(
    hall: Hall, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = hall.shop  # noqa: F811  not the fixture
    shop.add(1, ROWS)
    hall.hire()
    first = hall.finish(hall.begin("articles_v1"))
    assert first.index == "search.articles_v1"
    with traffic(shop, seed=6) as going:
        run = hall.begin("articles_v2")
        wait_until(lambda: hall.progress(run, "backfill") >= 1, BOUND)
        hall.hire()
        hall.workers[0].kill()
        wait_until(lambda: hall.progress(run, "backfill") >= 2, BOUND)
        _refuse(shop, "articles_v2")
        wait_until(lambda: "out of order" in (hall.state(run, "held_up_by") or ""), BOUND)
        _accept(shop, "articles_v2")
        offset = hall.state(run, "consumer_offset")
        assert _interrupt(shop) > 0
        wait_until(lambda: hall.state(run, "consumer_offset") != offset, BOUND)
        hall.hire()
        hall.workers[1].send_signal(signal.SIGKILL)
        found = hall.finish(run)
        # It goes on: the feed of each index follows, and its worker dies as well.
        before = dict(going.counts)
        wait_until(lambda: going.counts["read"] > before["read"] + 20, BOUND)
        hall.hire()
        hall.workers[2].kill()
        wait_until(lambda: going.counts["update"] > before.get("update", 0) + 50, BOUND)
    assert (found.index, found.previous) == ("search.articles_v2", "search.articles_v1")
    for index in ("articles_v1", "articles_v2"):
        hall.wait_fresh(f"search.{index}")
        assert shop.differences(index) == []
    assert found.staleness_at_switch < STALENESS
    with capsys.disabled():
        sys.stdout.write(
            f"\n  a cutover under fire: {going.counts}, {found.changes} changes followed,"
            f" {found.pending_at_switch} pending at the switch,"
            f" staleness {found.staleness_at_switch:.3f} s\n"
        )


@pytest.mark.timeout(900)
def test_a_worker_may_be_killed_at_every_point_of_a_cutover(hall: Hall) -> None:
    shop = hall.shop  # noqa: F811  not the fixture
    shop.add(1, 3000)
    run = hall.begin("articles_v1")
    for point in (
        "cutover.apply.before_write",
        "cutover.apply.after_write",
        "cutover.switch.before_commit",
        "cutover.switch.after_commit",
    ):
        mortal = hall.hire(crash_at=point)
        until = monotonic() + BOUND
        while mortal.poll() is None:
            assert not hall.is_over(run)
            assert monotonic() < until, hall.account(run)
            shop.do("UPDATE shop.articles SET price = price + 1 WHERE id = 17")
            with suppress(subprocess.TimeoutExpired):
                mortal.wait(0.05)
        assert mortal.wait() == -signal.SIGKILL, hall.account(run)
    noted = "SELECT count(*) FROM tidegate.alias_switch"
    assert shop.do(noted) == [(1,)]
    hall.hire()
    hall.finish(run)
    assert shop.do(noted) == [(1,)]
    hall.wait_fresh("search.articles_v1")
    assert shop.differences("articles_v1") == []


@pytest.mark.timeout(900)
def test_readers_go_back_to_an_index_that_was_kept_fresh(hall: Hall) -> None:
    shop = hall.shop  # noqa: F811  not the fixture
    shop.add(1, 500)
    hall.hire()
    for name in ("articles_v1", "articles_v2"):
        hall.finish(hall.begin(name))
    shop.do("UPDATE shop.articles SET title = 'changed since' WHERE id = 3")
    assert reverse(shop.database, reindex, by="somebody") == "search.articles_v1"
    assert shop.do("SELECT title FROM search.articles WHERE id = 3") == [("changed since",)]
    retire(shop.database, reindex, "articles_v2")
    left = [it.index for it in indexes_of(shop.database, reindex)]
    assert left == ["search.articles_v1"]
    kept = shop.do("SELECT split_part(name, ' ', 1) FROM tidegate_log.consumer")
    assert kept == [("search.articles_v1",)]
