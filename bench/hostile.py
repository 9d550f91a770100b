"""Two clients of one deployment, one of them hostile: how much longer do the other's runs take?

    python -m bench.hostile                # ten minutes of hostility
    python -m bench.hostile --minutes 1

The honest client sends runs of two small chunks, one after the other, and checks every result:
alone first, then while the hostile client sends damaged chunks and decompression bombs, opens
connections that stay silent, reads results a byte at a time, opens runs without end and fills its
quota. Prints the ratio of the medians and what became of the hostile requests; exits 1 when a run
of the honest client is lost, wrong or not done within its bound, or when the ratio is above 2.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from itertools import count
from math import inf
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from threading import Event, Thread
from time import monotonic

from bench._hostile_inputs import BOMBS, Chunk, damaged

ALONE = 12
"""Runs of the honest client without the other; the first two warm everything up."""
WARM_UP = 2
BOUND = 300.0
"""Seconds within which a run of the honest client has to be complete."""
MOST_RATIO = 2.0
SILENT = 520
"""Connections that send nothing."""
SLOW_READERS = 12
NOTES, AUTHORS = 500, 10
"""Of a chunk of the honest client; its amounts are 1 in the first chunk and 2 in the second."""
TOTAL = NOTES // AUTHORS * (1 + 2)
HONEST, HOSTILE = "honest", "hostile"
QUIET = 0.05


class Rejected(Exception):
    """The server has returned an unexpected response."""


@dataclass
class Client:
    """One client of the deployment, over connections that are used once."""

    port: int
    token: str
    lost_connections: int = 0

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """The status and body of an answer."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=BOUND)
        try:
            headers = {"authorization": f"Bearer {self.token}"}
            if method == "POST":
                headers["idempotency-key"] = sha256(path.encode() + (body or b"")).hexdigest()
            connection.request(method, f"/pipelines/notes/runs{path}", body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def must(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """The body of a good answer. A lost connection is tried again, as `submit` does."""
        try:
            status, text = self.ask(method, path, body)
        except ConnectionError:
            self.lost_connections += 1
            status, text = self.ask(method, path, body)
        if status >= HTTPStatus.BAD_REQUEST:
            raise Rejected(f"{method} {path}: {_told(status, text)}")
        return text


def honest_run(client: Client, name: str) -> float:
    """Seconds from the beginning of a run to its results, which are checked."""
    began = monotonic()
    client.must("POST", "", json.dumps({"run": name}).encode())
    for number in (1, 2):
        rows = "".join(f"author {at % AUTHORS},note {at},{number}\n" for at in range(NOTES))
        body = f"author,note,amount\n{rows}".encode()
        client.must("PUT", f"/{name}/sources/notes/chunks/{number}?format=csv", body)
    client.must("POST", f"/{name}/sources/notes/end", b'{"chunks": 2}')
    while True:
        state = json.loads(client.must("GET", f"/{name}/state"))["run"]["state"]
        if state != "open":
            break
        if monotonic() - began > BOUND:
            raise Rejected(f"{name} is not complete after {BOUND:g} s")
        Event().wait(QUIET)
    if state != "ended":
        raise Rejected(f"{name} is {state}")
    text = client.must("GET", f"/{name}/results/totals?format=csv").decode()
    totals = [line.rpartition(",")[2] for line in text.splitlines()[1:]]
    if totals != [str(TOTAL)] * AUTHORS:
        raise Rejected(f"{name} is {state}: {text!r}")
    return monotonic() - began


@dataclass
class Hostility:
    """Everything a hostile client does, each on a thread, until it is stopped."""

    client: Client
    bombs: dict[str, Chunk]
    stopped: Event = field(default_factory=Event)
    answers: Counter[tuple[str, str]] = field(default_factory=Counter)

    def executors(self) -> list[Thread]:
        """One for each kind."""
        work = (self.send_bombs, self.send_damaged, self.stay_silent, self.read_slowly, self.fill)
        return [Thread(target=self._until_stopped, args=(it,), daemon=True) for it in work]

    def _until_stopped(self, work: Callable[[Iterator[int]], None]) -> None:
        numbers = count(1)
        while not self.stopped.is_set():
            with suppress(OSError, HTTPException, Rejected):
                work(numbers)
            self.stopped.wait(QUIET)

    def send_bombs(self, numbers: Iterator[int]) -> None:
        """One run for each bomb, ended at once."""
        for title, (kind, body) in self.bombs.items():
            self._send(title, f"bomb-{next(numbers)}", kind, body)

    def send_damaged(self, numbers: Iterator[int]) -> None:
        """Damaged chunks, one run each."""
        for title, (kind, body) in damaged():
            if self.stopped.is_set():
                return
            self._send(title, f"damaged-{next(numbers)}", kind, body)

    def _send(self, title: str, run: str, kind: str, body: bytes) -> None:
        try:
            self.client.must("POST", "", json.dumps({"run": run}).encode())
            path = f"/{run}/sources/notes"
            status, text = self.client.ask("PUT", f"{path}/chunks/1?format={kind}", body)
            self.answers[title, _told(status, text)] += 1
            if status < HTTPStatus.MULTIPLE_CHOICES:
                self.client.must("POST", f"{path}/end", b'{"chunks": 1}')
            else:
                self.client.must("POST", f"/{run}/cancel")
        except Rejected as refused:
            self.answers[title, str(refused).partition(": ")[2][:90]] += 1
        except (OSError, HTTPException) as error:
            self.answers[title, type(error).__name__] += 1

    def stay_silent(self, _numbers: Iterator[int]) -> None:
        """Connections that send the beginning of a request and no more."""
        held: list[socket.socket] = []
        try:
            while len(held) < SILENT:
                held.append(socket.create_connection(("127.0.0.1", self.client.port), timeout=5))
                held[-1].send(b"GET /health HTTP/1.1\r\n")
            self.stopped.wait(10)
        finally:
            self.answers["silent connections", "opened"] += len(held)
            for it in held:
                it.close()

    def read_slowly(self, numbers: Iterator[int]) -> None:
        """Results of 20 MB, by several readers that take a byte a second."""
        run = f"large-{next(numbers)}"
        self.client.must("POST", "", json.dumps({"run": run}).encode())
        rows = b"".join(b"author %d,%s,1\n" % (at, b"n" * 200) for at in range(100_000))
        self.client.must("PUT", f"/{run}/sources/notes/chunks/1?format=csv",
                         b"author,note,amount\n" + rows)  # fmt: skip
        self.client.must("POST", f"/{run}/sources/notes/end", b'{"chunks": 1}')
        until = monotonic() + 60
        while json.loads(self.client.must("GET", f"/{run}/state"))["run"]["state"] == "open":
            if monotonic() > until or self.stopped.wait(0.5):
                return
        self._held_downloads(f"/pipelines/notes/runs/{run}/results/texts?format=csv")

    def _held_downloads(self, path: str) -> None:
        head = f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{self.client.port}\r\n"
        head += f"authorization: Bearer {self.client.token}\r\n\r\n"
        held: list[socket.socket] = []
        try:
            for _ in range(SLOW_READERS):
                held.append(socket.create_connection(("127.0.0.1", self.client.port), timeout=5))
                held[-1].send(head.encode())
            for _ in range(20):
                if self.stopped.wait(1):
                    return
                for it in held:
                    with suppress(OSError):
                        it.recv(1)
        finally:
            self.answers["slow readers", "opened"] += len(held)
            for it in held:
                it.close()

    def fill(self, numbers: Iterator[int]) -> None:
        """Open runs without end, with chunks of 8 MB in them."""
        run = f"full-{next(numbers)}"
        self.client.must("POST", "", json.dumps({"run": run}).encode())
        body = b"author,note,amount\n" + b"ann,%s,1\n" % Random(1).randbytes(4 << 20).hex().encode()
        for number in range(1, 5):
            path = f"/{run}/sources/notes/chunks/{number}?format=csv"
            status, text = self.client.ask("PUT", path, body)
            self.answers["chunks of 8 MB", _told(status, text)] += 1


def _told(status: int, text: bytes) -> str:
    """The status, and the condition of a refusal."""
    with suppress(ValueError, TypeError, KeyError):
        return f"{status} {json.loads(text)['condition']}"
    return str(status)


@contextmanager
def deployment(folder: Path, settings: list[str]) -> Iterator[tuple[Client, Client]]:
    """A real deployment with two workers, and its two clients."""
    tokens = {name: sha256(name.encode()).hexdigest()[:32] for name in (HONEST, HOSTILE)}
    lines = [f"{name}: {sha256(token.encode()).hexdigest()}\n" for name, token in tokens.items()]
    (folder / "tokens").write_text("".join(lines))
    port = _free_port()
    command = [sys.executable, "-m", "tidegate", "up", "bench._hostile_pipeline:pipeline"]
    command += ["--deployment", str(folder / "deployment"), "--tokens", str(folder / "tokens")]
    command += ["--listen", f"127.0.0.1:{port}", "--spark", "local[2]"]
    command += [word for each in settings for word in ("--set", each)]
    with (folder / "up.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        honest = Client(port, tokens[HONEST])
        _wait_until_ready(honest, process)
        yield honest, Client(port, tokens[HOSTILE])
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(60)
        process.kill()
        print((folder / "up.log").read_text(errors="replace")[-3000:], file=sys.stderr)


def _wait_until_ready(client: Client, process: subprocess.Popen[bytes]) -> None:
    until = monotonic() + BOUND
    while monotonic() < until and process.poll() is None:
        with suppress(OSError, HTTPException, Rejected):
            client.must("GET", "")
            return
        Event().wait(0.5)
    raise SystemExit("the deployment did not come up")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def main() -> None:
    """Measure and print; the exit code shows whether the honest client was served."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--set", action="append", default=[], help="a setting of the deployment")
    asked = parser.parse_args()
    bombs = {}
    for title, make in BOMBS.items():
        bombs[title] = make()
        print(f"  {title:<20} {len(bombs[title][1]):>12,} bytes", flush=True)
    with (
        TemporaryDirectory(prefix="tidegate-", ignore_cleanup_errors=True) as folder,
        deployment(Path(folder), asked.set) as (honest, hostile),
    ):
        alone = [honest_run(honest, f"alone-{number}") for number in range(ALONE)][WARM_UP:]
        print(f"alone:  {_figures(alone)}", flush=True)
        hostility = Hostility(hostile, bombs)
        executors = hostility.executors()
        for thread in executors:
            thread.start()
        beside, lost = _beside(honest, asked.minutes * 60)
        hostility.stopped.set()
        for thread in executors:
            thread.join(60)
    for (title, answer), times in sorted(hostility.answers.items()):
        print(f"  {title:<20} {times:>7,} × {answer}")
    print(f"alone:  {_figures(alone)}")
    retried = f"{honest.lost_connections} connections tried again"
    print(f"beside: {_figures(beside)}, {lost} lost, {retried}")
    ratio = median(beside) / median(alone) if beside else inf
    print(f"ratio of the medians: {ratio:.2f} × (at most {MOST_RATIO:g})")
    raise SystemExit(1 if lost or ratio > MOST_RATIO else 0)


def _beside(honest: Client, seconds: float) -> tuple[list[float], int]:
    """How long each run takes while the other client is there, and how many are lost."""
    taken, lost = [], 0
    until = monotonic() + seconds
    for number in count():
        if monotonic() > until:
            break
        try:
            taken.append(honest_run(honest, f"beside-{number}"))
        except (Rejected, OSError, HTTPException) as error:
            lost += 1
            print(f"lost: {error}", flush=True)
            Event().wait(1)
    return taken, lost


def _figures(seconds: list[float]) -> str:
    if not seconds:
        return "no run"
    return f"{len(seconds)} runs, median {median(seconds):.2f} s, longest {max(seconds):.2f} s"


if __name__ == "__main__":
    main()
