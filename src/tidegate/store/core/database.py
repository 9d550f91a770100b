"""The database of a deployment: finding it, transactions, and retries after a lost connection.

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
"""The connection of a transaction, for packages that do not import psycopg."""

VARIABLE = "TIDEGATE_DATABASE"
OLDEST = 15
POOL_SIZE = 10
RETRY_BOUND = 60.0
RETRIES = Backoff(first=0.02, longest=1.0)
"""The pauses between attempts to reach the database."""
CHECKED_FOR = 1.0
"""Seconds for which the result of `check` is reused."""
IDLE_BOUND = 10.0
"""Seconds of idleness after which the server ends a transaction, so that a frozen or disconnected
client does not keep its locks."""

TRANSIENT = (
    "08",  # connection exceptions
    "25P03",  # the transaction was idle for too long
    "25P04",  # the transaction took longer than an administrator allows
    "40001",  # serialization failure
    "40P01",  # deadlock: this transaction was chosen as the victim
    "53100",  # the disk is full
    "53200",  # out of memory
    "53300",  # too many connections
    "55P03",  # a lock was not acquired in the time that an administrator allows
    "57014",  # a statement took longer than an administrator allows, or was cancelled by hand
    "57P01",  # the server is stopping
    "57P02",  # the server crashed
    "57P03",  # the server is starting
    "57P05",  # the session was idle for too long between transactions
)
"""Error codes, or prefixes of them, after which the same transaction may succeed.

Timeouts are among them, as they are mostly caused by locks of other transactions. Code that sets a
timeout itself catches its error within the transaction.
"""


class Database:
    """A connection pool, and transactions that are retried after a lost connection.

    `revive` is called before a transaction is retried; it may start the server.
    """

    def __init__(
        self,
        url: str,
        revive: Callable[[], None] = lambda: None,
        pool_size: int = POOL_SIZE,
        bound: float = RETRY_BOUND,
        idle_bound: float = IDLE_BOUND,
    ) -> None:
        self.url = url
        self.name = describe(url)
        self._revive = revive
        self._bound = bound
        self._owned = ExitStack()
        self._is_closed = False
        self._idle_bound = idle_bound
        self._checking = Lock()
        self._checked_until = 0.0
        self._last_error: psycopg.Error | None = None
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
        """Fill the pool without migrating: for a database that does not belong to Tidegate."""
        self._pool.open()
        self._aside.open()
        return self

    def close(self) -> None:
        """Close all connections, and release the embedded server."""
        self._is_closed = True
        self._pool.close()
        self._aside.close()
        self._owned.close()

    def owning(self, server: EmbeddedPostgres) -> Self:
        """Release this server when the database is closed."""
        self._owned.callback(server.close)
        return self

    def connect(self) -> psycopg.Connection:
        """A connection outside of the pool, in autocommit mode; the caller closes it."""
        return psycopg.connect(self.url, autocommit=True, connect_timeout=10)

    def transact(self, work: Callable[[psycopg.Connection], T], bound: float | None = None) -> T:
        """Run `work` as one transaction and commit; rerun it after a lost connection.

        Work must be idempotent: when the connection is lost during the commit, its outcome is
        unknown and the work is repeated.
        """
        return self._persist(lambda left: _once(self._pool, work, left), bound or self._bound)

    def transact_aside(self, work: Callable[[psycopg.Connection], T], bound: float) -> T:
        """Like `transact`, on a reserved connection that does not wait for the pool.

        For short and rare transactions.
        """
        return self._persist(lambda left: _once(self._aside, work, left), bound)

    def check(self, bound: float) -> None:
        """Raise `DatabaseUnreachable` if the database does not answer in time.

        Uses a connection of its own, as those of the pool may all be in use or blocked. The result
        is reused for `CHECKED_FOR` seconds.
        """
        with self._checking:
            if monotonic() >= self._checked_until:
                self._last_error = _failure(self.url, bound)
                self._checked_until = monotonic() + CHECKED_FOR
            if self._last_error is not None:
                reason = _first_line(self._last_error)
                raise DatabaseUnreachable(self.name, bound, reason) from self._last_error

    def _configure(self, connection: psycopg.Connection) -> None:
        bound = f"{round(1000 * self._idle_bound)}ms"
        query = "SELECT set_config('idle_in_transaction_session_timeout', %s, false)"
        connection.execute(query, (bound,))
        connection.commit()

    def _persist(self, attempt: Callable[[float], T], bound: float) -> T:
        deadline = monotonic() + bound
        for pause in RETRIES.pauses():
            try:
                return attempt(max(0.1, deadline - monotonic()))
            except psycopg.Error as error:
                if not is_transient(error):
                    raise
                if self._is_closed or monotonic() + pause > deadline:
                    raise DatabaseUnreachable(self.name, bound, _first_line(error)) from error
                log.warning("%s: retrying after %s", self.name, _first_line(error))
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


def _failure(url: str, bound: float) -> psycopg.Error | None:
    """Why a database does not answer; None if it does."""
    timeout = max(2, round(bound))  # the least that libpq accepts
    began_at = monotonic()
    try:
        with closing(psycopg.connect(url, autocommit=True, connect_timeout=timeout)) as connection:
            connection.pgconn.send_query(b"SELECT 1")
            if not _is_readable(connection.fileno(), max(0.0, bound - monotonic() + began_at)):
                return psycopg.OperationalError("it accepts connections but does not answer")
    except psycopg.Error as error:
        return error
    return None


def _is_readable(descriptor: int, bound: float) -> bool:
    """Whether there is something to read in time; `select` refuses large descriptors."""
    poller = poll()
    poller.register(descriptor, POLLIN)
    return bool(poller.poll(1000 * bound))


def open_database(
    database: str | None, folder: Path, environment: Mapping[str, str] | None = None
) -> Database:
    """Open the database at a URL, by default the embedded one in the folder."""
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
    """The message of libpq contains the URL, which is hidden if it may contain a password."""
    if "@" in url or "password" in url:
        return InvalidDatabase(f"{url.partition(':')[0]}://…", "it is not a PostgreSQL URL")
    return InvalidDatabase(url, _first_line(error))


def check_version(version: int, database: str) -> None:
    """Raise `DatabaseTooOld` for an unsupported server; versions are numbers such as 150004."""
    if version < OLDEST * 10_000:
        found = f"{version // 10_000}.{version % 10_000}"
        raise DatabaseTooOld(database, found, OLDEST)


def is_transient(error: psycopg.Error) -> bool:
    """Whether the same transaction may succeed later.

    An operational error without a code is a lost connection.
    """
    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError)
    return error.sqlstate.startswith(TRANSIENT)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
