"""A server has bounds for all clients together."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from tests.waiting import wait_until
from tidegate.run.deployment import Deployment
from tidegate.run.service import Front
from tidegate.serve import Limits, Listening, serving_http


def status(at: Listening) -> int:
    connection = HTTPConnection(at.host, at.port, timeout=60)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status
    finally:
        connection.close()


def test_whoever_comes_to_a_full_server_is_told_so_until_others_leave(tmp_path: Path) -> None:
    service = cast("Front", SimpleNamespace(check=lambda: None))
    place = cast("Deployment", SimpleNamespace(root=str(tmp_path)))
    with serving_http(service, place, "127.0.0.1:0", limits=Limits(connections=4)) as at:
        assert status(at) == 200
        with ExitStack() as others:
            for _ in range(3):
                others.enter_context(socket.create_connection((at.host, at.port), timeout=60))
            wait_until(lambda: status(at) == 503)
        wait_until(lambda: status(at) == 200)
