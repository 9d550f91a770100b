"""Detects that the JVM of a session has ended.

A classic session has a JVM that this process has started. Once it has ended, the session cannot be
used, and no other can be opened while tasks refer to it. A Connect server or a cluster is another
process, which this one cannot observe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from subprocess import Popen, TimeoutExpired
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from tidegate.errors import SparkLost, TidegateError

if TYPE_CHECKING:
    from tidegate.spark.session.sessions import Session

END_SECONDS = 5.0
"""Seconds for a JVM to end after a call to it was interrupted."""
_STOPPED = ("SparkContext was shut down", "stopped SparkContext")
"""Errors of jobs during an orderly end of the JVM, as after `System.exit`."""
_MEANINGS = {3: "out of memory", 52: "out of memory", -9: "killed", -6: "crashed", -11: "crashed"}


def is_remote(session: Session) -> bool:
    """Whether it is over Connect."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def why_ended(session: Session) -> str | None:
    """How the JVM of a session has ended; None while it runs, or if another process started it."""
    process = _process_of(session)
    code = None if process is None else process.poll()
    return None if process is None or code is None else how_it_ended(process.pid, code)


def ended_under(session: Session, error: BaseException) -> str | None:
    """How the JVM has ended, if that is why a call to Spark has failed.

    A call fails shortly before the end of the process can be observed, so this waits for it.
    """
    process = _process_of(session)
    if process is None or not (is_interrupted(error) or process.poll() is not None):
        return None
    try:
        return how_it_ended(process.pid, process.wait(END_SECONDS))
    except TimeoutExpired:
        is_stopped = any(map(_is_stopped, _chain(error)))
        return "its SparkContext was stopped" if is_stopped else None


@contextmanager
def reported_end(session: Callable[[], Session]) -> Iterator[None]:
    """Raise `SparkLost` for a call to Spark that has failed because the JVM has ended."""
    try:
        yield
    except TidegateError:
        raise
    except Exception as error:
        if not is_interrupted(error):
            raise
        reason = ended_under(session(), error)
        if reason is None:
            raise
        raise SparkLost(reason) from error


def how_it_ended(pid: int, code: int) -> str:
    """What the exit code of a JVM means.

    >>> how_it_ended(7, -9)
    'Java (pid 7) ended with signal 9 (killed)'
    >>> how_it_ended(7, 3)
    'Java (pid 7) ended with exit code 3 (out of memory)'
    """
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    meaning = f" ({_MEANINGS[code]})" if code in _MEANINGS else ""
    return f"Java (pid {pid}) ended with {how}{meaning}"


def is_interrupted(error: BaseException) -> bool:
    """Whether the end of the JVM may have caused an error: connection lost, or Spark stopped."""
    return any(_is_broken(it) or _is_stopped(it) for it in _chain(error))


def _chain(error: BaseException) -> list[BaseException]:
    causes = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) and cause not in causes:
        causes.append(cause)
    return causes


def _is_broken(error: BaseException) -> bool:
    # The subclass for exceptions raised in Java does not mean a broken connection.
    return isinstance(error, ConnectionError) or (
        isinstance(error, Py4JError) and not hasattr(error, "java_exception")
    )


def _is_stopped(error: BaseException) -> bool:
    return any(words in str(error) for words in _STOPPED)


def _process_of(session: Session) -> Popen[bytes] | None:
    """The JVM that PySpark has started for this process, by way of spark-submit."""
    if is_remote(session):
        return None
    gateway = getattr(session.sparkContext, "_gateway", None)
    process = gateway.__dict__.get("proc") if gateway is not None else None
    return process if isinstance(process, Popen) else None
