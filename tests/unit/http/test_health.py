"""Health asks the database, and is answered in time whatever else is at work."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from time import monotonic

from tests.unit.http.server_stub import TOKENS, StubDatabase, ask, front, place_in
from tidegate.errors import DatabaseUnreachable
from tidegate.http import serve_http

LONG = 60.0


class Database(StubDatabase):
    """Does what a test wants when it is asked how it is."""

    def __init__(self, check: Callable[[], object]) -> None:
        super().__init__()
        self._check = check
        self.looks = 0

    def check(self, bound: float) -> None:
        self.looks += 1
        self._check()


def gone() -> None:
    raise DatabaseUnreachable("shop on localhost", 2.0, "connection refused")


def test_a_server_without_its_database_is_not_well(tmp_path: Path) -> None:
    place = place_in(tmp_path, Database(gone))
    with serve_http(front(), place, "127.0.0.1:0", TOKENS) as at:
        answered = ask(at, "GET", "/health")
    assert (answered.status, answered.condition) == (503, "ServerTrouble")
    assert b"localhost" not in answered.body


def test_a_database_that_is_silent_is_noticed_in_time_and_asked_once(tmp_path: Path) -> None:
    released = Event()
    database = Database(lambda: released.wait(LONG))
    place = place_in(tmp_path, database, health_seconds=0.5)
    with (
        serve_http(front(), place, "127.0.0.1:0", TOKENS) as at,
        ThreadPoolExecutor(5) as many,
    ):
        began = monotonic()
        asked = [many.submit(ask, at, "GET", "/health") for _ in range(5)]
        assert {it.result().status for it in asked} == {503}
        assert monotonic() - began < LONG / 2
        assert database.looks == 1
        released.set()


def test_health_is_answered_while_all_questions_wait(tmp_path: Path) -> None:
    released = Event()
    database = Database(lambda: None)
    database.answer = lambda: released.wait(LONG) and []
    with (
        serve_http(front(), place_in(tmp_path, database), "127.0.0.1:0", TOKENS) as at,
        ThreadPoolExecutor(8) as many,
    ):
        waiting = [many.submit(ask, at, "GET", "/pipelines/shop/runs") for _ in range(8)]
        try:
            assert ask(at, "GET", "/health", timeout=20).status == 200
        finally:
            released.set()
        assert {it.result().status for it in waiting} == {200}
