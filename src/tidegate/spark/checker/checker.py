"""A chunk checker: a process that reads files of clients in place of the server.

    server ──Check──▶ checker ──Copied | NeedsSpark | ChunkRefused | CheckFailed──▶ server

It is started by `checker_main` with one connection as its standard input, has neither Spark nor a
database, and its memory is bounded. A file that crashes it affects no other process.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pyarrow as pa

from tidegate.errors import ChunkNeedsMemory
from tidegate.spark.checker.limits import ChunkLimits
from tidegate.spark.checker.process_memory import data_bytes
from tidegate.spark.checker.protocol import (
    REFUSALS,
    Answer,
    Check,
    CheckFailed,
    ChunkRefused,
    Ready,
    receive,
    send,
)
from tidegate.spark.ingest.ingest import check_chunk


def main() -> None:
    """Handle requests until the server closes the connection: then raises `EOFError`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # at a terminal the server handles it
    with socket.socket(fileno=0) as connection:
        Thread(target=_end_with, args=(connection.fileno(),), daemon=True).start()
        limits: ChunkLimits = receive(connection, ChunkLimits)
        confine(limits)
        send(connection, Ready())
        while True:
            request: Check = receive(connection, Check)
            send(connection, answer(request, limits))


def confine(limits: ChunkLimits) -> None:
    """Limit the resources that checking a chunk may use."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    taken = resource.getrlimit(resource.RLIMIT_DATA)[1]
    most = limits.memory_bytes if taken < 0 else min(taken, limits.memory_bytes)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


@contextmanager
def at_most(more: int) -> Iterator[None]:
    """Limit the further memory of this process until the end of a block."""
    pa.default_memory_pool().release_unused()
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (min(data_bytes() + more, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def answer(request: Check, limits: ChunkLimits) -> Answer:
    """The answer to a request."""
    try:
        return check_chunk(request, limits, at_most)
    except tuple(REFUSALS.values()) as error:
        return ChunkRefused.by(error)
    except MemoryError:
        return ChunkRefused.by(ChunkNeedsMemory(request.source, request.file, limits.memory_bytes))
    except Exception as error:  # noqa: BLE001  reported to the server
        return CheckFailed(type(error).__name__, str(error)[:1000])
    finally:
        pa.default_memory_pool().release_unused()


def _end_with(connection: int) -> None:
    """Exit when the server has ended: checking a chunk may take the main thread long."""
    watched = select.poll()
    watched.register(connection, select.POLLRDHUP)
    watched.poll()
    os._exit(0)
