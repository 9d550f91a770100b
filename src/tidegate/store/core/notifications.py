"""Wake-ups: who sleeps until something changes hears of the commit that changed it.

Whoever writes calls `notify` once in its transaction, with the topics that have news; the server
delivers it with the commit. One thread per process listens, on a connection of its own, and
calls whoever subscribed to a topic. After every LISTEN, the first and any after a lost
connection, everybody is called: what was committed in between was not heard. A call is a hint to
look again. Nobody depends on it, and everybody looks now and then without one.
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
"""PostgreSQL takes less than 8000 bytes; more topics than that are news for everybody."""

CHECK = 0.5
"""Seconds between two looks at whether the listener was closed."""

POLL = 1.0
"""Seconds after which a waiting thread looks again without a notification."""

SEPARATOR = "\n"

T = TypeVar("T")


def notify(connection: psycopg.Connection, topics: Iterable[str]) -> None:
    """Wake those who wait for one of these topics, once this transaction has committed."""
    payload = pack(topics)
    if payload is not None:
        connection.execute(_SQL["notify"].sql, (payload,))


def pack(topics: Iterable[str]) -> str | None:
    """The payload for these topics: "" means everybody, None that there is nothing to tell."""
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
    """Listens on one connection and calls subscribers. Callbacks run on its thread, briefly."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._subscribers: dict[str, list[Callable[[], None]]] = defaultdict(list)
        self._changing = Lock()
        self._closed = Event()
        self._listening = Event()
        self._thread = Thread(target=self._run, name="tidegate-wakeups", daemon=True)
        self._thread.start()

    def subscribe(self, topic: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` when the topic may have news, and once now; the answer unsubscribes."""
        with self._changing:
            self._subscribers[topic].append(wake)
        wake()
        return lambda: self._unsubscribe(topic, wake)

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
        """Wait until commits are heard; whether they are."""
        return self._listening.wait(timeout)

    def close(self) -> None:
        """Stop listening."""
        self._closed.set()
        self._thread.join(10)

    def _unsubscribe(self, topic: str, wake: Callable[[], None]) -> None:
        with self._changing, suppress(ValueError):
            self._subscribers[topic].remove(wake)

    def _run(self) -> None:
        tries = RETRIES.pauses()
        while not self._closed.is_set():
            try:
                with self._database.connect() as connection:
                    connection.execute(_SQL["listen"].sql)
                    tries = RETRIES.pauses()
                    self._hear(connection)
            except psycopg.OperationalError as loss:
                log.info("wake-ups were lost and will be listened for again: %s", loss)
            finally:
                self._listening.clear()
            self._closed.wait(next(tries))

    def _hear(self, connection: psycopg.Connection) -> None:
        self._wake("")
        self._listening.set()
        while not self._closed.is_set():
            for notification in connection.notifies(timeout=CHECK):
                self._wake(notification.payload)

    def _wake(self, payload: str) -> None:
        with self._changing:
            topics = payload.split(SEPARATOR) if payload else list(self._subscribers)
            called = [wake for topic in topics for wake in self._subscribers.get(topic, ())]
        for wake in called:
            try:
                wake()
            except Exception:  # one subscriber's trouble must not leave the others asleep
                log.exception("a subscriber could not be woken")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_SQL = queries(__name__)
