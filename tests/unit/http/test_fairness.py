"""One client's slow chunks do not delay another client, nor the end of the server."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event
from time import monotonic

from tests.unit.http.server_stub import StubServer, put_chunk, shop_at

LONG = 60.0


def test_two_slow_chunks_of_one_client_do_not_delay_the_chunk_of_another(tmp_path: Path) -> None:
    begun, released = Barrier(3, timeout=LONG), Event()

    def check(run: str, file: Path) -> None:
        if run.startswith("ann/"):
            begun.wait()
            assert released.wait(LONG)

    with shop_at(tmp_path, StubServer(check)) as at, ThreadPoolExecutor(2) as clients:
        slow = [clients.submit(put_chunk, at, "ann", number=each) for each in (1, 2)]
        begun.wait()
        try:
            assert put_chunk(at, "ben", b"item_id,qty\n1,2\n\n", timeout=10).status == 201
        finally:
            released.set()
        assert [it.result().status for it in slow] == [201, 201]


STUCK = """
from pathlib import Path
from threading import Event, Thread

from tests.unit.http.server_stub import StubServer, put_chunk, shop_at

begun = Event()

def check(run, file):
    begun.set()
    Event().wait()

with shop_at(Path({root!r}), StubServer(check), http_stop_seconds=0.5) as at:
    def send():
        try:
            put_chunk(at, "ann")
        except OSError:
            pass
    Thread(target=send, daemon=True).start()
    assert begun.wait(30)
"""


def test_a_server_ends_although_a_chunk_is_checked_for_ever(tmp_path: Path) -> None:
    began = monotonic()
    process = subprocess.Popen([sys.executable, "-c", STUCK.format(root=str(tmp_path))])
    try:
        assert process.wait(40.0) == 0
        assert monotonic() - began < 30.0
    finally:
        process.kill()
        process.wait()
