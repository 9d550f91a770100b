"""Temporary lack of threads or sockets causes no permanent failure."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread

import pytest

from tests.waiting import wait_until
from tidegate.errors import CoordinatorUnreachable
from tidegate.group import Coordinator, Group, Message, new_secret
from tidegate.group.member.handlers import Handlers

SECRET = new_secret()


@pytest.fixture
def path() -> Iterator[Path]:
    """Of a socket; such a path has to be short."""
    with TemporaryDirectory(prefix="tidegate-") as folder:
        yield Path(folder) / "group"


def test_a_socket_with_a_full_backlog_is_not_replaced(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as owner:
        owner.bind(str(path))
        owner.listen(0)
        waiting = fill(path)

        with pytest.raises(CoordinatorUnreachable, match="in use"):
            Coordinator(f"unix://{path}", secret=SECRET)

        assert path.is_socket()
        for it in waiting:
            it.close()


def fill(path: Path) -> list[socket.socket]:
    """Connect until there is no room for more."""
    waiting: list[socket.socket] = []
    while True:
        it = socket.socket(socket.AF_UNIX)
        it.setblocking(False)
        try:
            it.connect(str(path))
        except BlockingIOError:
            it.close()
            return waiting
        waiting.append(it)


def test_a_failed_rejoin_is_retried(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"unix://{path}"
    lacking, start = [RuntimeError("can't start new thread")], Thread.start

    def start_at_last(thread: Thread) -> None:
        if thread.name == "group messages" and lacking:
            raise lacking.pop()
        start(thread)

    with Coordinator(address, secret=SECRET):
        group = Group.join("ann", address=address, secret=SECRET)
    monkeypatch.setattr(Thread, "start", start_at_last)

    with group, Coordinator(address, secret=SECRET):
        wait_until(lambda: not lacking and group.is_connected)
        assert group.rendezvous("noon").is_satisfied


def test_a_message_that_cannot_be_queued_ends_the_session_and_not_the_membership(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"unix://{path}"
    lacking, add = [RuntimeError("can't start new thread")], Handlers.add
    arrived = Event()

    def add_at_last(handlers: Handlers, message: Message) -> None:
        if lacking:
            raise lacking.pop()
        add(handlers, message)

    monkeypatch.setattr(Handlers, "add", add_at_last)
    with (
        Coordinator(address, secret=SECRET) as coordinator,
        Group.join("ann", address=address, secret=SECRET) as ann,
        Group.join(
            "bob", address=address, secret=SECRET, handlers={"note": lambda _: arrived.set()}
        ) as bob,
    ):
        ann.wait_for(["ann", "bob"])

        def hears() -> bool:
            ann.publish("note")
            return arrived.wait(0.05)

        wait_until(hears)
        wait_until(lambda: bob.is_connected)
        coordinator.check()


def test_a_wait_may_be_longer_than_the_system_counts(path: Path) -> None:
    address = f"unix://{path}"
    with (
        Coordinator(address, secret=SECRET),
        Group.join("ann", address=address, secret=SECRET) as ann,
    ):
        waiting = Thread(target=ann.wait_for, args=(["ann", "bob"], 1e300), daemon=True)
        waiting.start()
        with Group.join("bob", address=address, secret=SECRET):
            waiting.join(30)
            assert not waiting.is_alive()
