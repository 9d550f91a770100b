"""A job of Spark that must not wait for ever: it is cancelled when its time is over."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from tidegate.spark.jobs.spark_errors import SPARK_ERRORS

if TYPE_CHECKING:
    from tidegate.spark.session.sessions import Session

CANCELLED = 10.0
"""Seconds to wait until what was cancelled has let go."""

Made = TypeVar("Made")


def in_time(session: Session, seconds: float, job: Callable[[], Made]) -> Made | None:
    """What a job gives; None if it takes longer, in which case it is cancelled."""
    made: list[Made] = []
    failed: list[Exception] = []
    tag = f"tidegate-bounded-{uuid4().hex}"

    def work() -> None:
        try:
            session.addTag(tag)  # of this thread's jobs alone
            made.append(job())
        except SPARK_ERRORS as error:
            failed.append(error)

    # A daemon: a server that has stopped answering must not keep this process alive.
    thread = Thread(target=work, name="tidegate-bounded-job", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        session.interruptTag(tag)
        thread.join(CANCELLED)
        return None
    if failed:
        raise failed[0]
    return made[0]
