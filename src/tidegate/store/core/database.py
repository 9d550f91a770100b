"""The database of a deployment: where it is, how to use it, what to do when it goes away.

    with open_database(url, folder) as database:
        database.transact(lambda connection: …)

A URL given by the user comes first, then TIDEGATE_DATABASE, then the embedded server in the
deployment's folder. Opening checks the server's version and brings the schema up to date.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from select import POLLIN, poll
from threading import Lock
from time import monotonic, sleep
from typing import Self, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import ConnectionPool

from tidegate.backoff import Backoff
from tidegate.errors import DatabaseTooOld, DatabaseUnreachable, InvalidDatabase
from tidegate.store.core.embedded_postgres import EmbeddedPostgres
from tidegate.store.core.migrations import migrate

log = logging.getLogger(__name__)
T = TypeVar("T")

Connection = psycopg.Connection
"""What transactions are handed, under a name for rooms that do not import psycopg."""

VARIABLE = "TIDEGATE_DATABASE"
OLDEST = 15
POOL_SIZE = 10
RETRY_BOUND = 60.0
RETRIES = Backoff(first=0.02, longest=1.0)
"""The pauses between attempts to reach the database."""
CHECKED_FOR = 1.0
"""Seconds for which the answer of `check` is good."""
SILENCE = 10.0
"""Seconds without a word from its client after which the server ends a transaction: whoever froze
or was cut off in the middle of one must not keep others waiting for what it has locked."""

PASSING = (
    "08",  # connection exceptions
    "25P03",  # nothing was said for too long in the middle of it
    "25P04",  # the transaction took longer than an administrator allows
    "40001",  # serialization failure
    "40P01",  # deadlock, we were the victim
    "53100",  # the disk is full, until somebody makes room
    "53200",  # out of memory
    "53300",  # too many connections
    "55P03",  # a lock did not come in the time that an administrator allows
    "57014",  # a statement took longer than an administrator allows, or was cancelled by hand
    "57P01",  # the server is stopping
    "57P02",  # the server crashed
    "57P03",  # the server is starting
    "57P05",  # nothing was said for too long between transactions
)
"""Error codes, or their beginnings, after which the same transaction may well succeed.

Bounds of time are among them: mostly somebody else held a lock. Who sets one for itself catches its
error inside of the transaction.
"""


class Database:
    """A pool of connections, and transactions that outlive the loss of one.

    `revive` is called before a transaction is tried again; it may start the server.
    """

    def __init__(
        self,
        url: str,
        revive: Callable[[], None] = lambda: None,
        pool_size: int = POOL_SIZE,
        bound: float = RETRY_BOUND,
        silence: float = SILENCE,
    ) -> None:
        self.url = url
        self.name = describe(url)
        self._revive = revive
        self._bound = bound
        self._owned = ExitStack()
        self._is_closed = False
        self._silence = silence
        self._checking = Lock()
        self._checked_until = 0.0
        self._last_loss: psycopg.Error | None = None
        self._pool = ConnectionPool(
            url, min_size=1, max_size=pool_size, open=False, configure=self._configure
        )
        self._aside = ConnectionPool(
            url, min_size=0, max_size=1, open=False, configure=self._configure, num_workers=1
        )

    def open(self) -> Self:
        """Check the server, bring the schema up to date, fill the pool."""
        self._persist(self._prepare, self._bound)
        return self.attach()

    def attach(self) -> Self:
        """Fill the pool alone: this is a database of somebody else's, and nothing is made there."""
        self._pool.open()
        self._aside.open()
        return self

    def close(self) -> None:
        """Close all connections of the pool, and let go of the embedded server."""
        self._is_closed = True
        self._pool.close()
        self._aside.close()
        self._owned.close()

    def owning(self, server: EmbeddedPostgres) -> Self:
        """Let go of the server when the database is closed."""
        self._owned.callback(server.close)
        return self

    def connect(self) -> psycopg.Connection:
        """A connection outside of the pool, in autocommit mode; the caller closes it."""
        return psycopg.connect(self.url, autocommit=True, connect_timeout=10)

    def transact(self, work: Callable[[psycopg.Connection], T], bound: float | None = None) -> T:
        """Run `work` as one transaction and commit; again from the start when that was lost.

        Work must be harmless when it is repeated after it was committed: when the connection
        breaks during the commit, nobody can tell whether it happened.
        """
        return self._persist(lambda left: _once(self._pool, work, left), bound or self._bound)

    def transact_aside(self, work: Callable[[psycopg.Connection], T], bound: float) -> T:
        """The same for what cannot wait until others of this process have ended their transactions.

        It has a connection of its own, so it is for what is short and rare.
        """
        return self._persist(lambda left: _once(self._aside, work, left), bound)

    def check(self, bound: float) -> None:
        """Raise `DatabaseUnreachable` if the database does not answer in time.

        It asks on a connection of its own: the others may all be in use, or wait for it. An answer
        is good for a moment, so that asking often costs nothing.
        """
        with self._checking:
            if monotonic() >= self._checked_until:
                self._last_loss = _loss(self.url, bound)
                self._checked_until = monotonic() + CHECKED_FOR
            if self._last_loss is not None:
                reason = _first_line(self._last_loss)
                raise DatabaseUnreachable(self.name, bound, reason) from self._last_loss

    def _configure(self, connection: psycopg.Connection) -> None:
        wanted = f"{round(1000 * self._silence)}ms"
        asked = "SELECT set_config('idle_in_transaction_session_timeout', %s, false)"
        connection.execute(asked, (wanted,))
        connection.commit()

    def _persist(self, attempt: Callable[[float], T], bound: float) -> T:
        deadline = monotonic() + bound
        for pause in RETRIES.pauses():
            try:
                return attempt(max(0.1, deadline - monotonic()))
            except psycopg.Error as loss:
                if not is_transient(loss):
                    raise
                if self._is_closed or monotonic() + pause > deadline:
                    raise DatabaseUnreachable(self.name, bound, _first_line(loss)) from loss
                log.warning("%s: trying again after %s", self.name, _first_line(loss))
            sleep(pause)
            self._recover()
        raise AssertionError("pauses never end")

    def _recover(self) -> None:
        self._revive()
        for pool in (self._pool, self._aside):
            if not pool.closed:
                pool.check()  # the other connections are probably broken too

    def _prepare(self, left: float) -> None:
        with psycopg.connect(self.url, connect_timeout=max(1, int(left))) as connection:
            check_version(connection.info.server_version, self.name)
            migrate(connection, self.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _once(pool: ConnectionPool, work: Callable[[psycopg.Connection], T], left: float) -> T:
    with pool.connection(timeout=left) as connection:
        return work(connection)


def _loss(url: str, bound: float) -> psycopg.Error | None:
    """What keeps a database from answering, if anything does."""
    waits = max(2, round(bound))  # libpq waits no less
    began_at = monotonic()
    try:
        with closing(psycopg.connect(url, autocommit=True, connect_timeout=waits)) as connection:
            connection.pgconn.send_query(b"SELECT 1")
            if not _is_readable(connection.fileno(), max(0.0, bound - monotonic() + began_at)):
                return psycopg.OperationalError("it takes connections and does not answer")
    except psycopg.Error as loss:
        return loss
    return None


def _is_readable(descriptor: int, bound: float) -> bool:
    """Whether there is something to read in time; `select` would refuse large descriptors."""
    looking = poll()
    looking.register(descriptor, POLLIN)
    return bool(looking.poll(1000 * bound))


def open_database(
    database: str | None, folder: Path, environment: Mapping[str, str] | None = None
) -> Database:
    """The database that was asked for, ready to use; by default the one in the folder."""
    url = database or (environment or {}).get(VARIABLE)
    if url:
        return Database(url).open()
    server = EmbeddedPostgres(folder / "postgres").open()
    try:
        return Database(server.url, revive=server.ensure_running).owning(server).open()
    except BaseException:
        server.close()
        raise


def describe(url: str) -> str:
    """Where a URL points, without its password.

    >>> describe("postgresql://me:secret@db.example:5433/shop")
    'shop on db.example:5433'
    """
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error as error:
        raise _invalid(url, error) from None
    name, host, port = (parts.get(key) for key in ("dbname", "host", "port"))
    return f"{name or 'postgres'} on {host or 'localhost'}:{port or 5432}"


def _invalid(url: str, error: psycopg.Error) -> InvalidDatabase:
    """The reason of libpq repeats the URL, which is not shown where it may hold a password."""
    if "@" in url or "password" in url:
        return InvalidDatabase(f"{url.partition(':')[0]}://…", "it is not a PostgreSQL URL")
    return InvalidDatabase(url, _first_line(error))


def check_version(version: int, database: str) -> None:
    """Refuse a server that is too old; versions are numbers such as 150004."""
    if version < OLDEST * 10_000:
        found = f"{version // 10_000}.{version % 10_000}"
        raise DatabaseTooOld(database, found, OLDEST)


def is_transient(error: psycopg.Error) -> bool:
    """Whether the same transaction may succeed later; an error without a code is a lost link.

    Unless it is one of a value or a call that never went there.
    """
    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError)
    return error.sqlstate.startswith(PASSING)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
