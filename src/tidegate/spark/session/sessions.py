"""Opens Spark sessions, classic or over Connect, with the settings that results depend on.

All sessions of Tidegate are opened here, so that the same rows give the same digits everywhere:
dates are UTC, and an arithmetic error raises instead of giving null.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir
from typing import TypeAlias
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from tidegate.errors import SparkUnavailable, SparkUnprotected
from tidegate.permissions import PRIVATE
from tidegate.spark.jobs.spark_errors import SPARK_ERRORS, cause_of
from tidegate.spark.session.authentication import ADVICE, CONNECT_BIND, SECRET, protection
from tidegate.spark.session.jvm_liveness import is_remote, why_ended

Session: TypeAlias = SparkSession
"""A classic session or one over Connect; they share an interface, not a class."""

DEFAULT_MASTER = "local[*]"
REMOTE = "sc://"
STANDALONE = "spark://"
SMALL_POOL = "small"

_HERE = Path(__file__).parent
_NO_JAVA = "JAVA_GATEWAY_EXITED"
_DEFAULT_PORTS = {REMOTE: 15002, STANDALONE: 7077}
_CONNECT_SECONDS = 10.0
"""Seconds within which a connection has to be accepted."""
_INSTALL_JAVA = "Install a Java 17+ runtime (`make setup` does), or let JAVA_HOME point at one."
_CHECK_ADDRESS = "Check that Spark listens there and accepts these settings."

STATIC: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Hadoop starts a `chmod` process for every file and folder it creates; VFORK starts it fast.
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_HERE / 'log4j2.properties'}"
    " -Djdk.lang.Process.launchMechanism=VFORK"
    # A JVM that has run out of memory may hang; when it exits, the process is restarted.
    " -XX:+ExitOnOutOfMemoryError",
    # The default local file system of Hadoop writes a checksum file beside each file.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    # With the default of 100 rows, a hundred large values are in memory before they are counted.
    "spark.hadoop.parquet.page.size.row.check.min": "1",
    "spark.scheduler.mode": "FAIR",
    # Jobs of one pool run first in, first out, unless the pool itself is declared fair.
    "spark.scheduler.allocation.file": str(_HERE / "fair_pool.xml"),
    # A pipeline runs the same few hundred generated classes repeatedly. With the default of 100
    # entries, each is evicted and compiled again, and runs cold.
    "spark.sql.codegen.cache.maxEntries": "4000",
}
"""Fixed when a driver starts; a running server has its own."""

_WAREHOUSE = "spark.sql.warehouse.dir"

IN_THIS_PROCESS: Mapping[str, str] = {"spark.hadoop.fs.permissions.umask-mode": "077"}
"""Hadoop sets the mode of files itself and ignores the umask of the process."""

ON_A_CLUSTER: Mapping[str, str] = {
    "spark.executor.extraJavaOptions": "-Djdk.lang.Process.launchMechanism=VFORK"
    " -XX:+ExitOnOutOfMemoryError",
}
"""For executors in processes of their own, which create files, too."""

RUNTIME: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.shuffle.partitions": "8",
    # A task names each of its files: listing them must not become a Spark job of its own.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # Writing by shard keeps a few files open instead of sorting all rows first.
    "spark.sql.maxConcurrentOutputFileWriters": "64",
}
"""Settings of every session that results and speed depend on."""


def open_session(
    master: str = DEFAULT_MASTER,
    *,
    connect: bool = False,
    settings: Mapping[str, str] | None = None,
) -> Session:
    """The session of this process on `master`, or on a Connect server (`sc://host:port`).

    `connect=True` starts a Connect server on a local master. `settings` override the defaults. A
    process has either classic or Connect sessions: stop one before opening the other.

    Only processes with its secret may connect to a driver; see `authentication`.

    Raises `SparkUnavailable`, `SparkUnprotected`.
    """
    given = dict(settings or {})
    if _is_here(master):
        # Without it, Spark resolves the host name to find an address of this machine.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # Python functions run in this interpreter, not in the first one of the search path.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # PySpark logs the text of every error that it raises.
    for logger in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_interrupted_call)
    _refuse_without_java(master)
    _refuse_without_listener(master)
    try:
        with _without_static_warnings(), _interrupts_deferred(), _private_files(master):
            session = _builder(master, connect, given).getOrCreate()
        for name, value in {**RUNTIME, **_without_static(given)}.items():
            session.conf.set(name, value)
    except SPARK_ERRORS as error:
        cause = cause_of(error)
        if SECRET in str(error):
            raise SparkUnprotected(master, "its secret is missing", ADVICE) from error
        instead = _INSTALL_JAVA if cause.condition == _NO_JAVA else _CHECK_ADDRESS
        raise SparkUnavailable(master, cause.reason.rstrip("."), instead) from error
    return session


def reading_by_row(session: Session) -> Session:
    """A session that reads Parquet row by row instead of 4,096 rows at a time, which may be large.

    Over Connect it is the same session: the memory of the server is not that of this process.
    """
    if is_remote(session):
        return session
    return _with_settings(
        session.newSession(), {"spark.sql.parquet.enableVectorizedReader": "false"}
    )


def prefer_this_thread(session: Session) -> None:
    """Run the small jobs of this thread before large ones; see `fair_pool.xml`.

    A Connect client cannot choose a pool: there all jobs are scheduled alike.
    """
    if not is_remote(session):
        session.sparkContext.setLocalProperty("spark.scheduler.pool", SMALL_POOL)


def _refuse_without_java(master: str) -> None:
    """Raise before PySpark does, which prints the errors of a shell script to the terminal."""
    if master.startswith(REMOTE) or SparkSession.getActiveSession() is not None:
        return
    home = os.environ.get("JAVA_HOME")
    if shutil.which(str(Path(home, "bin", "java")) if home else "java") is None:
        reason = f"JAVA_HOME is {home}, which has no bin/java" if home else "java is not installed"
        raise SparkUnavailable(master, reason, _INSTALL_JAVA)


def _refuse_without_listener(master: str) -> None:
    """Raise before Spark does, which takes minutes."""
    addresses = _addresses(master)
    if addresses and not any(map(_listens, addresses)):
        listeners = " or ".join(f"{host}:{port}" for host, port in addresses)
        raise SparkUnavailable(master, f"nothing listens on {listeners}", _CHECK_ADDRESS)


def _addresses(master: str) -> list[tuple[str, int]]:
    """The addresses of a Connect server, or of one or several masters."""
    for scheme, port in _DEFAULT_PORTS.items():
        if master.startswith(scheme):
            hosts = master.removeprefix(scheme).split(";")[0].split("/")[0].split(",")
            return [_address(host, port) for host in hosts]
    return []


def _address(text: str, default: int) -> tuple[str, int]:
    split = urlsplit(f"//{text}")
    try:
        return split.hostname or "", split.port or default
    except ValueError:  # not a port number
        return text, default


def _listens(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, _CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def _is_here(master: str) -> bool:
    """Whether driver, master and workers are all on this machine."""
    hosts = {host for host, _ in _addresses(master)}
    is_loopback = bool(hosts) and hosts <= {"localhost", "127.0.0.1", "::1"}
    return master.startswith("local") or (master.startswith(STANDALONE) and is_loopback)


@contextmanager
def session_on(master: str = DEFAULT_MASTER, cores: int | None = None) -> Iterator[Session]:
    """A session on `master`; stopped at the end unless it existed before.

    `cores` limits the cores it takes of a cluster; by default it takes all of them.
    """
    existed = SparkSession.getActiveSession() is not None
    session = open_session(master, settings={"spark.cores.max": str(cores)} if cores else None)
    try:
        yield session
    finally:
        if not existed:
            _stop(session)


def active_session() -> Session | None:
    """The session that this thread uses, if there is one."""
    return SparkSession.getActiveSession()


@contextmanager
def engine_session(session: Session | None, master: str = DEFAULT_MASTER) -> Iterator[Session]:
    """A session with the settings that results depend on, until the end of the block.

    It is a session of its own on the Spark of the given or the active session, whose settings stay
    as they are. A Connect session is used as it is. Without any, a session is started on `master`.
    """
    present = session or SparkSession.getActiveSession()
    if present is None:
        with session_on(master) as own:
            yield own
    elif is_remote(present):
        yield present
    else:
        yield _with_settings(present.newSession(), {})


def _with_settings(session: Session, settings: Mapping[str, str]) -> Session:
    for name, value in {**RUNTIME, **settings}.items():
        session.conf.set(name, value)
    return session


@contextmanager
def borrowed(session: Session | None) -> Iterator[Session]:
    """The given or the active session, or a new one that is stopped at the end."""
    present = session or SparkSession.getActiveSession()
    if present is not None:
        yield present
        return
    own = open_session()
    try:
        yield own
    finally:
        _stop(own)


def _stop(session: Session) -> None:
    """Stop a session, unless its JVM has ended."""
    if why_ended(session) is None:
        session.stop()


def _builder(master: str, connect: bool, settings: Mapping[str, str]) -> SparkSession.Builder:
    builder = SparkSession.builder.appName("tidegate")
    if master.startswith(REMOTE):
        return builder.remote(master)
    submitted = os.environ.get("PYSPARK_SUBMIT_ARGS", "")
    protected = protection(master, settings, submitted, is_here=_is_here(master))
    if connect:
        protected.update(CONNECT_BIND)
    builder = builder.remote(master) if connect else builder.master(master)
    for name, value in {**STATIC, **_by_master(master), **protected, **settings}.items():
        builder = builder.config(name, value)
    return builder


def _by_master(master: str) -> dict[str, str]:
    """Settings that depend on where executors run.

    Spark would create a warehouse in the working directory, although it is never used.
    """
    warehouse = {_WAREHOUSE: Path(gettempdir(), "tidegate-spark-warehouse").as_uri()}
    return {**warehouse, **(IN_THIS_PROCESS if master.startswith("local") else ON_A_CLUSTER)}


def _without_static(settings: Mapping[str, str]) -> dict[str, str]:
    runtime = {name for name in settings if name.startswith("spark.sql.")} - {_WAREHOUSE}
    return {name: value for name, value in settings.items() if name in runtime}


@contextmanager
def _without_static_warnings() -> Iterator[None]:
    """A local Connect server applies static settings when it starts; its client warns anyway."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Failed to set", category=UserWarning)
        yield


@contextmanager
def _interrupts_deferred() -> Iterator[None]:
    """Defer Ctrl-C until Spark has started, and restore its handler then.

    An interrupted start prints Java errors to the terminal. The handler that PySpark installs
    calls Java, which fails if the signal interrupts another call to Java.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is None:
        yield
        return
    deferred: list[int] = []

    def defer(number: int, _: object) -> None:
        deferred.append(number)

    signal.signal(signal.SIGINT, defer)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if deferred:
        signal.raise_signal(signal.SIGINT)


@contextmanager
def _private_files(master: str) -> Iterator[None]:
    """Make all files of a local Spark, also temporary ones, readable by this user only.

    Java inherits the umask when it is started. Executors of a cluster may run as another user.
    """
    if not master.startswith("local"):
        yield
        return
    before = os.umask(PRIVATE)
    try:
        yield
    finally:
        os.umask(before)


def _is_not_interrupted_call(record: logging.LogRecord) -> bool:
    """Filters the traceback that py4j logs for an interrupt, which it raises as well."""
    return not record.getMessage().startswith("KeyboardInterrupt while sending command")
