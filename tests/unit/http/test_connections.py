"""Connections that do nothing, or read nothing, do not shut others out."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from time import monotonic

import pytest

from tests.unit.http.server_stub import StubServer, ask, put_chunk, shop_at
from tests.waiting import wait_until
from tidegate.http import HttpAddress, HttpLimits

PROMPT = 20.0
"""Seconds, on a busy machine; it takes milliseconds."""


@contextmanager
def served_with(folder: Path, descriptors: int) -> Iterator[HttpAddress]:
    command = [sys.executable, "-m", "tests.unit.http.bounded_server", str(folder)]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            [*command, str(descriptors)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            host, port = process.stdout.readline().split()
            yield HttpAddress(host, int(port))
        finally:
            process.kill()


@contextmanager
def idle(at: HttpAddress, number: int, said: bytes = b"") -> Iterator[list[socket.socket]]:
    with ExitStack() as held:
        connections = []
        for _ in range(number):
            connection = socket.create_connection((at.host, at.port), timeout=60)
            connections.append(held.enter_context(connection))
            if said:
                connection.sendall(said)
        yield connections


def closed_after(connection: socket.socket) -> float:
    """Seconds until the server has closed it."""
    began = monotonic()
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    return monotonic() - began


@pytest.mark.parametrize("said", [b"", b"GET /health HTTP/1.1\r\nHost:"])
def test_idle_connections_do_not_shut_another_client_out(tmp_path: Path, said: bytes) -> None:
    with served_with(tmp_path, 4096) as at, idle(at, 520, said):
        began = monotonic()
        assert ask(at, "GET", "/health").status == 200
        assert put_chunk(at, "ben").status == 201
        assert monotonic() - began < PROMPT


def test_more_connections_than_descriptors_leave_some_and_fill_no_log(tmp_path: Path) -> None:
    with served_with(tmp_path, 128) as at, idle(at, 300):
        assert ask(at, "GET", "/health").status == 200
        assert put_chunk(at, "ben").status == 201
    assert (tmp_path / "log").stat().st_size < 10_000


def test_a_connection_has_to_bring_a_whole_request_head_in_time(tmp_path: Path) -> None:
    with shop_at(tmp_path, http_head_seconds=0.3) as at, idle(at, 1, b"GET /hea") as (trickles,):
        until = monotonic() + 60

        def trickle() -> bool:
            try:
                trickles.sendall(b"l")
                return monotonic() > until
            except OSError:
                return True

        wait_until(trickle, bound=10)


def test_a_connection_that_is_kept_alive_is_closed_when_it_is_idle(tmp_path: Path) -> None:
    request = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with shop_at(tmp_path, http_head_seconds=0.3) as at, idle(at, 1, request) as (kept,):
        assert closed_after(kept) < PROMPT


def test_a_connection_with_a_running_request_is_not_closed_and_further_ones_get_503(
    tmp_path: Path,
) -> None:
    begun, released = Event(), Event()

    def check(run: str, file: Path) -> None:
        begun.set()
        assert released.wait(60)

    limits = HttpLimits(connections=1, head=0.1)
    with shop_at(tmp_path, StubServer(check), limits) as at, ThreadPoolExecutor(1) as client:
        sent = client.submit(put_chunk, at, "ann")
        assert begun.wait(60)
        assert ask(at, "GET", "/health").status == 200
        full = ask(at, "GET", "/pipelines")
        assert (full.status, full.condition) == (503, "ServerFull")
        assert full.headers["retry-after"]
        released.set()
        assert sent.result().status == 201
        wait_until(lambda: ask(at, "GET", "/pipelines").status == 200)


def test_one_client_has_so_many_requests_at_work_and_another_is_not_concerned(
    tmp_path: Path,
) -> None:
    begun, released = Event(), Event()

    def check(run: str, file: Path) -> None:
        begun.set()
        assert released.wait(60)

    with (
        shop_at(tmp_path, StubServer(check), HttpLimits(requests=1)) as at,
        ThreadPoolExecutor(2) as clients,
    ):
        sent = clients.submit(put_chunk, at, "ann")
        assert begun.wait(60)
        many = ask(at, "GET", "/pipelines")
        assert (many.status, many.condition) == (429, "TooManyRequests")
        assert ask(at, "GET", "/pipelines", client="ben").status == 200
        assert ask(at, "GET", "/health").status == 200
        released.set()
        assert sent.result().status == 201


def test_a_body_that_does_not_come_is_given_up(tmp_path: Path) -> None:
    head = b"POST /pipelines/shop/runs HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer ann\r\n"
    with (
        shop_at(tmp_path, limits=HttpLimits(body=0.1)) as at,
        idle(at, 1, head + b"Content-Length: 20\r\n\r\n{") as (slow,),
    ):
        assert slow.recv(1 << 16).startswith(b"HTTP/1.1 408")
