"""`tidegate demo reindex`: replaces an index of articles while clients search and change them.

Clients insert, update and delete continuously; readers search through the alias. An index of exact
words is replaced by one of word stems, a worker is killed half-way, and in the end readers are
switched back and forth. A client measures the time until a change can be found. Finally every row
of both indexes is compared with the table.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from threading import Event, Thread
from time import monotonic

import psycopg
from rich.console import Console

from tidegate.cutover import indexes_of, reverse, start_cutover
from tidegate.cutover.values import Cutover
from tidegate.flows import FlowRun
from tidegate.store import Database, open_database
from tidegate.store.cutover.change_log import DELETED
from tidegate_examples.demo_output import DemoOutput
from tidegate_examples.flow_workers import BOUND, FlowWorkers
from tidegate_examples.reindex import TABLE, stemmed

PLAIN, STEMMED = "tidegate_examples.reindex:plain", "tidegate_examples.reindex:stemmed"
ROWS = 40_000
WRITERS = 2
WORDS = ("river", "rivers", "lamp", "lamps", "paper", "papers", "chair", "chairs", "hill", "hills")
CHANGES = {
    "update": "UPDATE shop.articles SET title = %(title)s, body = %(body)s WHERE id = %(id)s",
    "delete": "DELETE FROM shop.articles WHERE id = %(id)s",
    "insert": "INSERT INTO shop.articles VALUES (%(new)s, %(title)s, %(body)s, 1)",
}
COLUMNS = "id, title, body, price, changed_at"


def main() -> None:
    """Show it."""
    output = DemoOutput(Console())
    with (
        TemporaryDirectory(prefix="tidegate-", ignore_cleanup_errors=True) as folder,
        ExitStack() as left,
    ):
        place = Path(folder)
        database = left.enter_context(open_database(None, place))
        _fill(database)
        output.line(f"a table of {ROWS:,} articles, and no index of them")
        pool = FlowWorkers(database, place, output, left)
        old = pool.start_worker(PLAIN)
        _cut_over(pool, "articles_v1", start_cutover(database, stemmed, "articles_v1"))
        with _traffic(database.url) as seen:
            _deploy(pool, old)
            _replace(pool, seen)
            _go_back(pool, seen)
        _report(pool, seen)


@dataclass
class Seen:
    """What the clients have measured."""

    stopped: Event = field(default_factory=Event)
    changes: int = 0
    searches: int = 0
    found: int = 0
    delays: list[float] = field(default_factory=list)
    """Seconds until what was changed could be found."""
    errors: list[BaseException] = field(default_factory=list)


def _cut_over(pool: FlowWorkers, index: str, run: FlowRun) -> Cutover:
    """Wait until readers are switched, and print the result."""
    pool.wait_until(f"making {index}", lambda: pool.is_complete(run), lambda: _far(pool, run))
    made: Cutover = run.result("finish")
    pool.output.line(
        f"readers are switched to {made.index}",
        f"{made.rows:,} rows verified, {made.changes:,} changes consumed meanwhile",
        f"at the switch {made.pending_at_switch} changes were pending,"
        f" the oldest {made.staleness_at_switch:.2f} s old",
    )
    return made


def _far(pool: FlowWorkers, run: FlowRun) -> str:
    step = pool.step(run, "backfill")
    return f": {step.succeeded} of {step.spawned} portions are backfilled"


def _deploy(pool: FlowWorkers, old: subprocess.Popen[bytes]) -> None:
    """Start workers of another release, which continue the work of the old one."""
    pool.start_worker(STEMMED)
    old.terminate()
    pool.wait_until("the old worker ends", lambda: old.poll() is not None)
    pool.output.line("a release that indexes word stems takes over; the old worker has ended")


def _replace(pool: FlowWorkers, seen: Seen) -> None:
    """Create another index while a worker is killed."""
    killed = pool.start_worker(STEMMED)
    run = start_cutover(pool.database, stemmed, "articles_v2")
    pool.wait_until("backfilling articles_v2", lambda: pool.step(run, "backfill").succeeded >= 1)
    killed.kill()
    pool.output.line("a worker is killed during the backfill of articles_v2; another continues")
    before = seen.found
    _cut_over(pool, "articles_v2", run)
    pool.wait_until("readers search", lambda: seen.found != before)
    pool.output.line(f"a search for “river” finds {seen.found:,} articles instead of {before:,}")


def _go_back(pool: FlowWorkers, seen: Seen) -> None:
    """Switch readers back to the previous index, which was kept fresh, and forth again."""
    searches = seen.searches
    for _ in range(2):
        index = reverse(pool.database, stemmed, by="the demo", bound=BOUND)
        pool.output.line(f"readers are switched to {index}, which has all changes")
    pool.wait_until("readers search", lambda: seen.searches > searches + 100)


def _report(pool: FlowWorkers, seen: Seen) -> None:
    """Compare every row, and print what the clients measured."""
    if seen.errors:
        raise seen.errors[0]

    def is_fresh() -> bool:
        return all(it.pending == 0 for it in indexes_of(pool.database, stemmed))

    pool.wait_until("the last changes are applied", is_fresh)
    for index in ("articles_v1", "articles_v2"):
        different = pool.database.transact(partial(_differences, index=index))
        pool.output.line(f"{index}: {different} rows differ from the table")
        if different:
            raise SystemExit("an index differs from its table")
    pool.output.line(
        f"{seen.changes:,} changes and {seen.searches:,} searches, none of which failed"
        " or found nothing",
        f"a change could be found after {median(seen.delays):.2f} s (median),"
        f" {quantiles(seen.delays, n=20)[-1]:.2f} s (19 of 20), {max(seen.delays):.2f} s at most",
        style="bold green",
    )


# --- the table and its clients ---------------------------------------------------------------


def _fill(database: Database) -> None:
    chance = random.Random(7)  # noqa: S311  no secret
    rows = [(at, *_text(chance), chance.randrange(1, 9000)) for at in range(ROWS)]
    with psycopg.connect(database.url) as connection:
        connection.execute(TABLE.encode())
        query = "COPY shop.articles (id, title, body, price) FROM STDIN"
        with connection.cursor() as cursor, cursor.copy(query) as copy:
            for row in rows:
                copy.write_row(row)


def _text(chance: random.Random) -> tuple[str, str]:
    return chance.choice(WORDS), " ".join(chance.choices(WORDS, k=12))


def _differences(connection: psycopg.Connection, index: str) -> int:
    there = f"SELECT {COLUMNS} FROM search.{index} WHERE NOT {DELETED}"  # noqa: S608  our own
    here = f"SELECT {COLUMNS} FROM shop.articles"  # noqa: S608
    query = f"SELECT count(*) FROM (({here} EXCEPT {there}) UNION ALL ({there} EXCEPT {here})) it"  # noqa: S608
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return int(row[0])


@contextmanager
def _traffic(url: str) -> Iterator[Seen]:
    """Clients that change and search, until the block is left."""
    seen = Seen()
    works = [*(_writer(seen, number) for number in range(WRITERS)), _reader(seen), _prober(seen)]
    threads = [Thread(target=_client, args=(url, seen, it), daemon=True) for it in works]
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        seen.stopped.set()
        for thread in threads:
            thread.join(60)


Work = Callable[[psycopg.Connection], None]


def _client(url: str, seen: Seen, work: Work) -> None:
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            while not seen.stopped.is_set():
                work(connection)
    except BaseException as error:  # noqa: BLE001  raised at the end
        seen.errors.append(error)


def _writer(seen: Seen, number: int) -> Work:
    chance = random.Random(number)  # noqa: S311
    new = iter(range(1_000_000 * (number + 1), 1_000_000 * (number + 2)))

    def work(connection: psycopg.Connection) -> None:
        title, body = _text(chance)
        given = {"id": chance.randrange(ROWS), "new": next(new), "title": title, "body": body}
        query = CHANGES[chance.choice([*CHANGES])]
        connection.execute(query.encode(), given)
        seen.changes += 1
        seen.stopped.wait(0.02)

    return work


def _reader(seen: Seen) -> Work:
    def work(connection: psycopg.Connection) -> None:
        query = (
            "SELECT count(*) FROM search.articles WHERE document @@ to_tsquery('english', 'river')"
        )
        row = connection.execute(query).fetchone()
        if row is None or row[0] == 0:
            raise AssertionError("a reader found nothing")
        seen.found = row[0]
        seen.searches += 1
        seen.stopped.wait(0.01)

    return work


def _prober(seen: Seen) -> Work:
    """Measures how long a change takes until it can be found."""
    numbers = iter(range(9_000_000, 10_000_000))

    def work(connection: psycopg.Connection) -> None:
        at = next(numbers)
        insert = "INSERT INTO shop.articles (id, title, body, price) VALUES (%s, 'probe', '', 1)"
        connection.execute(insert, (at,))
        began = monotonic()
        found = "SELECT FROM search.articles WHERE id = %s"
        while connection.execute(found, (at,)).fetchone() is None:
            if monotonic() - began > BOUND:
                raise AssertionError(f"article {at} is not found")
            if seen.stopped.wait(0.005):
                return
        seen.delays.append(monotonic() - began)
        seen.stopped.wait(0.05)

    return work


if __name__ == "__main__":
    main()
