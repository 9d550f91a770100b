"""The cost of a cutover: backfill, change consumption, logged writes, and staleness.

    python -m bench.cutover                    # 200,000 rows
    python -m bench.cutover --rows 20000

Filling and following are compared with PostgreSQL itself doing the same by one statement, without
versions, in the same database: `INSERT … SELECT` into a table with the same indexes. Writers are
compared with themselves on a table without a log. Staleness is how long a change takes until it
can be found through the alias, while others write.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from threading import Event, Thread
from time import monotonic

import psycopg

from tidegate.cutover import Limits, PostgresTable, PostgresTarget
from tidegate.cutover.backfill import backfill
from tidegate.cutover.change_consumer import IDLE, ChangeApplier
from tidegate.cutover.source import TableSource
from tidegate.cutover.targets import Indexes
from tidegate.cutover.values import Portion
from tidegate.spark import open_session
from tidegate.store import Database, open_database
from tidegate.store.cutover.indexes import SwitchRecord

TABLE = "CREATE TABLE public.{name} (id bigint PRIMARY KEY, title text, body text, price numeric)"
ROWS = (
    "INSERT INTO public.{name}"
    " SELECT at, 'title ' || at, repeat('river lamp ' || at || ' ', 8), at / 7.0"
    " FROM generate_series(1, {rows}) AS at"
)
FLOOR = (
    "CREATE TABLE public.floor_{number} (LIKE public.articles, document tsvector"
    " GENERATED ALWAYS AS (to_tsvector('english', title || ' ' || body)) STORED, PRIMARY KEY (id));"
    "CREATE INDEX ON public.floor_{number} USING gin (document)"
)
COPY = "INSERT INTO public.floor_{number} SELECT * FROM public.articles"
UPDATE = "UPDATE public.{name} SET price = price + 1 WHERE id = %s"
SOURCE = PostgresTable("public.articles")
TARGET = PostgresTarget("public.searched", text=("title", "body"), language="english")
PROBES = 200
WRITES = 2000


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=200_000)
    given = parser.parse_args(arguments)
    with (
        TemporaryDirectory(prefix="tidegate-", ignore_cleanup_errors=True) as folder,
        open_database(None, Path(folder)) as database,
        SOURCE.open(database) as source,
        TARGET.open(database) as indexes,
    ):
        _run(database, TABLE.format(name="articles"), TABLE.format(name="unlogged"))
        for name in ("articles", "unlogged"):
            _run(database, ROWS.format(name=name, rows=given.rows))
        offset = source.start_log()
        _fill(database, source, indexes, given.rows)
        _writers(database, given.rows)
        consumer = ChangeApplier(source, indexes, "v1", offset)
        _consume(database, consumer, given.rows)
        _staleness(database, indexes, consumer, given.rows)


def _fill(database: Database, source: TableSource, indexes: Indexes, rows: int) -> None:
    portion, limits = Portion("v1", None, None), Limits()
    open_session("local[2]")
    _make(source, indexes, "warm")
    backfill(source, TARGET, database, Portion("warm", None, ("100",)), limits.piece, "local[2]")
    _make(source, indexes, "v1")
    ours = _timed(lambda: backfill(source, TARGET, database, portion, limits.piece, "local[2]"))
    _run(database, FLOOR.format(number=1))
    floor = _timed(lambda: _run(database, COPY.format(number=1)))
    _print("filling an index with Spark", rows / ours, rows / floor, "rows", "INSERT … SELECT")


def _make(source: TableSource, indexes: Indexes, index: str) -> None:
    indexes.create(index, source.shape())
    source.register(indexes.identity(index))


def _consume(database: Database, consumer: ChangeApplier, rows: int) -> None:
    consumer.catch_up()
    changed = min(rows, 50_000)
    _run(database, f"UPDATE public.articles SET price = price + 1 WHERE id <= {changed}")
    ours = _timed(consumer.catch_up)
    _run(database, FLOOR.format(number=2))
    floor = _timed(lambda: _run(database, f"{COPY.format(number=2)} WHERE id <= {changed}"))
    _print("following changes", changed / ours, changed / floor, "changes", "INSERT … SELECT")


def _writers(database: Database, rows: int) -> None:
    """One client, one row and one transaction at a time, in turns."""
    rates: dict[str, list[float]] = {"articles": [], "unlogged": []}
    with psycopg.connect(database.url, autocommit=True) as connection:
        for _ in range(3):
            for name, found in rates.items():
                query = UPDATE.format(name=name).encode()

                def write(query: bytes = query) -> None:
                    for number in range(WRITES):
                        connection.execute(query, (number * 7919 % rows + 1,))

                found.append(WRITES / _timed(write))
    logged, unlogged = (median(it) for it in rates.values())
    _print("writing to a table that is logged", logged, unlogged, "updates", "one that is not")


def _staleness(database: Database, indexes: Indexes, consumer: ChangeApplier, rows: int) -> None:
    indexes.switch("v1", SwitchRecord("the benchmark"), database.transact)
    with (
        _consuming(consumer),
        _writing(database.url, rows) as written,
    ):
        delays = _probe(database.url)
    print(
        f"a change is visible after {median(delays) * 1000:.0f} ms (median),"
        f" {quantiles(delays, n=20)[-1] * 1000:.0f} ms (19 of 20), {max(delays) * 1000:.0f} ms at"
        f" most, beside {len(written):,} changes of two others; the consumer polls every"
        f" {IDLE * 1000:.0f} ms"
    )


def _probe(url: str) -> list[float]:
    delays = []
    with psycopg.connect(url, autocommit=True) as connection:
        for number in range(10_000_000, 10_000_000 + PROBES):
            connection.execute("INSERT INTO public.articles VALUES (%s, 'probe', '', 0)", (number,))
            began = monotonic()
            while not connection.execute(
                "SELECT id FROM public.searched WHERE id = %s", (number,)
            ).fetchone():
                Event().wait(0.002)
            delays.append(monotonic() - began)
    return delays


@contextmanager
def _consuming(consumer: ChangeApplier) -> Iterator[None]:
    with _thread(consumer.catch_up, IDLE):
        yield


@contextmanager
def _writing(url: str, rows: int) -> Iterator[list[int]]:
    written: list[int] = []
    with psycopg.connect(url, autocommit=True) as connection:

        def write() -> None:
            connection.execute(UPDATE.format(name="articles").encode(), (len(written) % rows + 1,))
            written.append(1)

        with _thread(write, 0.01), _thread(write, 0.01):
            yield written


@contextmanager
def _thread(work: Callable[[], object], pause: float) -> Iterator[None]:
    """Repeat a function until the end of the block."""
    stopped = Event()

    def loop() -> None:
        while not stopped.wait(pause):
            work()

    thread = Thread(target=loop, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join(60)


def _run(database: Database, *statements: str) -> None:
    with psycopg.connect(database.url) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def _timed(work: Callable[[], object]) -> float:
    began = monotonic()
    work()
    return monotonic() - began


def _print(what: str, ours: float, peer: float, unit: str, against: str) -> None:
    print(f"{what}: {ours / peer:.2f} × {against} ({ours:,.0f} against {peer:,.0f} {unit}/s)")


if __name__ == "__main__":
    main()
