"""Runs a Spark job with a time limit, after which it is cancelled."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from tidegate.spark.jobs.spark_errors import SPARK_ERRORS

if TYPE_CHECKING:
    from tidegate.spark.session.sessions import Session

CANCEL_SECONDS = 10.0
"""Seconds to wait for the end of a cancelled job."""

Result = TypeVar("Result")


def run_with_timeout(session: Session, seconds: float, job: Callable[[], Result]) -> Result | None:
    """The result of a job; None if it takes longer, in which case it is cancelled."""
    results: list[Result] = []
    failed: list[Exception] = []
    tag = f"tidegate-bounded-{uuid4().hex}"

    def work() -> None:
        try:
            session.addTag(tag)  # only for jobs of this thread
            results.append(job())
        except SPARK_ERRORS as error:
            failed.append(error)

    # A daemon thread, so that a server that does not respond cannot keep this process alive.
    thread = Thread(target=work, name="tidegate-bounded-job", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        session.interruptTag(tag)
        thread.join(CANCEL_SECONDS)
        return None
    if failed:
        raise failed[0]
    return results[0]
