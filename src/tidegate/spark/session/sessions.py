"""Spark sessions: classic or over Connect, with the settings that make results right.

Everything Tidegate computes runs in a session made here, so that the same rows give the same
digits everywhere: dates are UTC, arithmetic that goes wrong raises instead of giving null.
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
"""A session of either kind; they share their interface, not their class."""

DEFAULT_MASTER = "local[*]"
REMOTE = "sc://"
STANDALONE = "spark://"
SMALL_POOL = "small"

_HERE = Path(__file__).parent
_NO_JAVA = "JAVA_GATEWAY_EXITED"
_DEFAULT_PORTS = {REMOTE: 15002, STANDALONE: 7077}
_ANSWERS = 10.0
"""Seconds within which somebody has to take a connection."""
_INSTALL_JAVA = "Install a Java 17+ runtime (`make setup` does), or let JAVA_HOME point at one."
_CHECK_ADDRESS = "Check that a Spark listens there and takes these settings."

STATIC: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Hadoop starts a `chmod` for every file and folder that it makes; this way they start quickly.
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_HERE / 'log4j2.properties'}"
    " -Djdk.lang.Process.launchMechanism=VFORK"
    # A JVM that has run out of memory somewhere may hang for ever; its process is started again.
    " -XX:+ExitOnOutOfMemoryError",
    # The other file system of Hadoop writes a checksum beside each file, which is a file as well.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    # With the default of 100 rows, a hundred large values are in memory before they are counted.
    "spark.hadoop.parquet.page.size.row.check.min": "1",
    "spark.scheduler.mode": "FAIR",
    # Jobs of one pool run first in, first out, unless the pool itself is declared fair.
    "spark.scheduler.allocation.file": str(_HERE / "fair_pool.xml"),
    # A pipeline runs the same few hundred pieces of generated code again and again. With the
    # default of 100, each is compiled anew every time, and runs cold.
    "spark.sql.codegen.cache.maxEntries": "4000",
}
"""Fixed when a driver starts; not ours to decide on a server that runs already."""

_WAREHOUSE = "spark.sql.warehouse.dir"

IN_THIS_PROCESS: Mapping[str, str] = {"spark.hadoop.fs.permissions.umask-mode": "077"}
"""Hadoop gives files a mode of its own, whatever the umask of the process is."""

ON_A_CLUSTER: Mapping[str, str] = {
    "spark.executor.extraJavaOptions": "-Djdk.lang.Process.launchMechanism=VFORK"
    " -XX:+ExitOnOutOfMemoryError",
}
"""Executors of their own make files, too."""

RUNTIME: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.shuffle.partitions": "8",
    # A step names its files one by one: listing them must not become a Spark job of its own.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # Writing by shard keeps a few files open instead of sorting all rows first.
    "spark.sql.maxConcurrentOutputFileWriters": "64",
}
"""What results and speed depend on, in every session."""


def open_session(
    master: str = DEFAULT_MASTER,
    *,
    connect: bool = False,
    settings: Mapping[str, str] | None = None,
) -> Session:
    """The session of this process on `master`, or on a Connect server (`sc://host:port`).

    `connect=True` starts a Connect server on a local master. `settings` override ours. A classic
    and a Connect session exclude each other: stop one before opening the other.

    Only processes that know its secret may talk to a driver; see `authentication`.

    Raises `SparkUnavailable`, `SparkUnprotected`.
    """
    given = dict(settings or {})
    if _is_here(master):
        # Who talks to this machine only needs no other address, which Spark would look for.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # Functions in Python are run by this one, and not by the first of the search path.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # PySpark logs the text of every error that it raises.
    for logger in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_no_interrupted_call)
    _refuse_without_java(master)
    _refuse_without_listener(master)
    try:
        with _quiet_about_static_settings(), _interrupts_held(), _private_files(master):
            session = _builder(master, connect, given).getOrCreate()
        for name, value in {**RUNTIME, **_without_static(given)}.items():
            session.conf.set(name, value)
    except SPARK_ERRORS as error:
        cause = cause_of(error)
        if SECRET in str(error):
            raise SparkUnprotected(master, "its secret is not known", ADVICE) from error
        instead = _INSTALL_JAVA if cause.condition == _NO_JAVA else _CHECK_ADDRESS
        raise SparkUnavailable(master, cause.reason.rstrip("."), instead) from error
    return session


def reading_by_row(session: Session) -> Session:
    """A session that reads Parquet row by row, and not 4,096 rows at a time: they may be large.

    Over Connect it is the same session, whose memory is not ours.
    """
    if is_remote(session):
        return session
    own = session.newSession()
    for name, value in {**RUNTIME, "spark.sql.parquet.enableVectorizedReader": "false"}.items():
        own.conf.set(name, value)
    return own


def prefer_this_thread(session: Session) -> None:
    """Let the small jobs of this thread go before large ones; see `fair_pool.xml`.

    Over Connect a client cannot choose: there all jobs share alike.
    """
    if not is_remote(session):
        session.sparkContext.setLocalProperty("spark.scheduler.pool", SMALL_POOL)


def _refuse_without_java(master: str) -> None:
    """PySpark finds out as well, but leaves the complaints of a shell script on the terminal."""
    if master.startswith(REMOTE) or SparkSession.getActiveSession() is not None:
        return
    home = os.environ.get("JAVA_HOME")
    if shutil.which(str(Path(home, "bin", "java")) if home else "java") is None:
        reason = f"JAVA_HOME is {home}, which has no bin/java" if home else "java is not installed"
        raise SparkUnavailable(master, reason, _INSTALL_JAVA)


def _refuse_without_listener(master: str) -> None:
    """Spark finds out as well, but only after minutes."""
    addresses = _addresses(master)
    if addresses and not any(map(_listens, addresses)):
        places = " or ".join(f"{host}:{port}" for host, port in addresses)
        raise SparkUnavailable(master, f"nobody listens on {places}", _CHECK_ADDRESS)


def _addresses(master: str) -> list[tuple[str, int]]:
    """Where a Connect server, or any of several masters, should be."""
    for scheme, port in _DEFAULT_PORTS.items():
        if master.startswith(scheme):
            places = master.removeprefix(scheme).split(";")[0].split("/")[0].split(",")
            return [_address(place, port) for place in places]
    return []


def _address(place: str, default: int) -> tuple[str, int]:
    split = urlsplit(f"//{place}")
    try:
        return split.hostname or "", split.port or default
    except ValueError:  # no number, or none of a port
        return place, default


def _listens(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, _ANSWERS).close()
    except OSError:
        return False
    return True


def _is_here(master: str) -> bool:
    """Whether everything that takes part is on this machine."""
    hosts = {host for host, _ in _addresses(master)}
    is_loopback = bool(hosts) and hosts <= {"localhost", "127.0.0.1", "::1"}
    return master.startswith("local") or (master.startswith(STANDALONE) and is_loopback)


@contextmanager
def session_on(master: str = DEFAULT_MASTER, cores: int | None = None) -> Iterator[Session]:
    """A session on `master`; stopped afterwards unless it was there before.

    `cores` is what it takes of a cluster at most; by default that is everything.
    """
    was_there = SparkSession.getActiveSession() is not None
    session = open_session(master, settings={"spark.cores.max": str(cores)} if cores else None)
    try:
        yield session
    finally:
        if not was_there:
            _stop(session)


@contextmanager
def borrowed(session: Session | None) -> Iterator[Session]:
    """The session given, or that is here already, or one of our own that is stopped afterwards."""
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
    """Stop a session; one whose JVM has ended cannot be asked to, and need not."""
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
    for name, value in {**STATIC, **_placed(master), **protected, **settings}.items():
        builder = builder.config(name, value)
    return builder


def _placed(master: str) -> dict[str, str]:
    """What depends on where executors are.

    Spark would make a warehouse in the working directory, although no table is ever kept there.
    """
    warehouse = {_WAREHOUSE: Path(gettempdir(), "tidegate-spark-warehouse").as_uri()}
    return {**warehouse, **(IN_THIS_PROCESS if master.startswith("local") else ON_A_CLUSTER)}


def _without_static(settings: Mapping[str, str]) -> dict[str, str]:
    runtime = {name for name in settings if name.startswith("spark.sql.")} - {_WAREHOUSE}
    return {name: value for name, value in settings.items() if name in runtime}


@contextmanager
def _quiet_about_static_settings() -> Iterator[None]:
    """A local Connect server takes them when it starts, and its client warns all the same."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Failed to set", category=UserWarning)
        yield


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C waits until Spark is there, and then means what it did before.

    In half a start Java would complain on the terminal. The handler that PySpark leaves behind
    calls Java, which fails where a call to Java is what was interrupted.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is None:
        yield
        return
    held: list[int] = []

    def hold(number: int, _: object) -> None:
        held.append(number)

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if held:
        signal.raise_signal(signal.SIGINT)


@contextmanager
def _private_files(master: str) -> Iterator[None]:
    """What a local Spark writes, also its temporary files, is for this user only.

    Java inherits this when it is started. Executors of a cluster may run as another user.
    """
    if not master.startswith("local"):
        yield
        return
    before = os.umask(PRIVATE)
    try:
        yield
    finally:
        os.umask(before)


def _is_no_interrupted_call(record: logging.LogRecord) -> bool:
    """The library below PySpark logs a traceback when it is interrupted, and raises it as well."""
    return not record.getMessage().startswith("KeyboardInterrupt while sending command")
