"""A client that does not read its result loses it, and the copy that was made for it goes."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.unit.http.server_stub import StubServer, ask, shop_at
from tests.waiting import wait_until
from tidegate.http import HttpAddress, HttpLimits

RESULT = 32 << 20
"""Bytes: more than the buffers of a connection hold."""
PATH = "/pipelines/shop/runs/march/results/best?format=csv"


class Results(StubServer):
    """Every run has one large result."""

    made: int = 0

    def wait(self, run: str, timeout: float) -> dict[str, list[object]]:
        return {"best": []}

    def write_csv(self, batches: object, schema: object, path: Path) -> None:
        with path.open("wb") as file:
            file.truncate(RESULT)
        self.made += 1


def copies(root: Path) -> list[Path]:
    return [*root.rglob("best.csv")]


@contextmanager
def asking(at: HttpAddress, number: int) -> Iterator[list[socket.socket]]:
    """Clients that ask for a result and read nothing of it."""
    with ExitStack() as held:
        found = []
        for _ in range(number):
            reader = held.enter_context(socket.create_connection((at.host, at.port), timeout=60))
            head = f"GET {PATH} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer ann\r\n\r\n"
            reader.sendall(head.encode())
            found.append(reader)
        yield found


def test_a_copy_that_is_not_read_is_removed_in_time(tmp_path: Path) -> None:
    results = Results()
    with shop_at(tmp_path, results, http_send_seconds=0.5) as at, asking(at, 3):
        wait_until(lambda: results.made == 3)
        wait_until(lambda: copies(tmp_path) == [])


def test_a_client_reads_so_many_results_at_once(tmp_path: Path) -> None:
    limits = HttpLimits(downloads_per_client=2, downloads=3)
    with shop_at(tmp_path, Results(), limits) as at, asking(at, 2):
        wait_until(lambda: len(copies(tmp_path)) == 2)
        refused = ask(at, "GET", PATH)
        assert (refused.status, refused.condition) == (429, "TooManyDownloads")
        assert len(ask(at, "GET", PATH, client="ben").body) == RESULT
        assert ask(at, "GET", "/pipelines").status == 200
