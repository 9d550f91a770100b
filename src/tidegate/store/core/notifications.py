"""Notifications: subscribers are called when a commit has changed something under their topic.

A writing transaction calls `notify` once, with the topics that it changes; the server delivers the
notification with the commit. One thread per process listens on a connection of its own and calls
the subscribers of the topics. After every LISTEN, the first one and those after a lost connection,
all subscribers are called, because commits in between were not received. A notification is only a
hint to read again: subscribers also poll.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Event, Lock, Thread
from time import monotonic
from typing import Self, TypeVar

import psycopg

from tidegate.store.core.database import RETRIES, Database
from tidegate.store.core.queries import queries

log = logging.getLogger(__name__)

LONGEST_PAYLOAD = 7_900
"""PostgreSQL accepts less than 8000 bytes; a longer list notifies all topics."""

CHECK = 0.5
"""Seconds between checks whether the listener was closed."""

POLL = 1.0
"""Seconds after which a waiting thread looks again without a notification."""

SEPARATOR = "\n"

T = TypeVar("T")


def notify(connection: psycopg.Connection, topics: Iterable[str]) -> None:
    """Notify the subscribers of these topics when this transaction commits."""
    payload = pack(topics)
    if payload is not None:
        connection.execute(_SQL["notify"].sql, (payload,))


def pack(topics: Iterable[str]) -> str | None:
    """The payload for these topics: "" means all topics, None that there are none."""
    payload = SEPARATOR.join(sorted(set(topics)))
    if not payload:
        return None
    return payload if len(payload.encode()) <= LONGEST_PAYLOAD else ""


def poll_until(
    look: Callable[[], T | None], changed: Event, timeout: float | None, poll: float = POLL
) -> T | None:
    """Call `look` after every change, and every `poll` seconds, until it returns something."""
    deadline = None if timeout is None else monotonic() + timeout
    while True:
        changed.clear()
        found = look()
        if found is not None:
            return found
        left = poll if deadline is None else min(poll, deadline - monotonic())
        if left <= 0:
            return None
        changed.wait(left)


class Notifications:
    """Listens on one connection and calls subscribers, which must return quickly."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._subscribers: dict[str, list[Callable[[], None]]] = defaultdict(list)
        self._changing = Lock()
        self._closed = Event()
        self._listening = Event()
        self._thread = Thread(target=self._run, name="tidegate-notifications", daemon=True)
        self._thread.start()

    def subscribe(self, topic: str, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when the topic may have changed, and once now; returns a canceller."""
        with self._changing:
            self._subscribers[topic].append(callback)
        callback()
        return lambda: self._unsubscribe(topic, callback)

    def wait_until(
        self, topic: str, look: Callable[[], T | None], timeout: float | None, poll: float = POLL
    ) -> T | None:
        """Wait until `look` returns something; None after `timeout` seconds.

        It is called at first, after every notification of the topic, and every `poll` seconds.
        """
        changed = Event()
        unsubscribe = self.subscribe(topic, changed.set)
        try:
            return poll_until(look, changed, timeout, poll)
        finally:
            unsubscribe()

    def wait_listening(self, timeout: float) -> bool:
        """Wait until notifications are received; False after the timeout."""
        return self._listening.wait(timeout)

    def close(self) -> None:
        """Stop listening."""
        self._closed.set()
        self._thread.join(10)

    def _unsubscribe(self, topic: str, callback: Callable[[], None]) -> None:
        with self._changing, suppress(ValueError):
            self._subscribers[topic].remove(callback)

    def _run(self) -> None:
        tries = RETRIES.pauses()
        while not self._closed.is_set():
            try:
                with self._database.connect() as connection:
                    connection.execute(_SQL["listen"].sql)
                    tries = RETRIES.pauses()
                    self._receive(connection)
            except psycopg.OperationalError as loss:
                log.info("lost the connection for notifications, reconnecting: %s", loss)
            finally:
                self._listening.clear()
            self._closed.wait(next(tries))

    def _receive(self, connection: psycopg.Connection) -> None:
        self._call("")
        self._listening.set()
        while not self._closed.is_set():
            for notification in connection.notifies(timeout=CHECK):
                self._call(notification.payload)

    def _call(self, payload: str) -> None:
        with self._changing:
            topics = payload.split(SEPARATOR) if payload else list(self._subscribers)
            callbacks = [each for topic in topics for each in self._subscribers.get(topic, ())]
        for callback in callbacks:
            try:
                callback()
            except Exception:  # the other subscribers must still be called
                log.exception("a notification callback failed")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_SQL = queries(__name__)
