"""A server answers before it can work, and its clients wait for it."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.unit.http.server_stub import front, place_in
from tests.unit.http.stub import LOST, answering, refusal, value
from tidegate.errors import ServerStarting, ServerUnreachable, UnsafeListen
from tidegate.http import HttpAddress, HttpClient, HttpLimits, listen_http
from tidegate.http.client.http_client import ConnectionLost, _RetryBound

STARTING = refusal(ServerStarting(12.5))


def ask(at: HttpAddress, method: str, path: str) -> tuple[int, str | None, dict[str, object]]:
    connection = HTTPConnection(at.host, at.port, timeout=60)
    try:
        connection.request(method, path, b"x" * 100_000 if method == "PUT" else None)
        answer = connection.getresponse()
        return answer.status, answer.headers["retry-after"], json.loads(answer.read())
    finally:
        connection.close()


def test_a_starting_server_answers_that_it_starts_and_then_serves(tmp_path: Path) -> None:
    with listen_http("127.0.0.1:0", None, HttpLimits()) as http_server:
        for method, path in [("GET", "/pipelines"), ("PUT", "/x"), ("GET", "/health")]:
            status, after, told = ask(http_server.at, method, path)
            assert (status, after, told["condition"]) == (503, "1", "ServerStarting")
        assert ask(http_server.at, "GET", "/health")[2]["status"] == "starting"
        with http_server.serve(front(), place_in(tmp_path)) as at:
            assert at == http_server.at
            assert ask(at, "GET", "/health") == (200, None, {"status": "ok"})


def test_a_server_that_cannot_start_listens_no_longer() -> None:
    def start() -> None:
        with listen_http("127.0.0.1:0", None, HttpLimits()) as http_server:
            addresses.append(http_server.at)
            raise RuntimeError("there is no Spark")

    addresses: list[HttpAddress] = []
    with pytest.raises(RuntimeError, match="no Spark"):
        start()
    with pytest.raises(ConnectionRefusedError):
        ask(addresses[0], "GET", "/health")


def test_an_address_that_is_not_safe_is_refused_before_anything_starts() -> None:
    with pytest.raises(UnsafeListen), listen_http("0.0.0.0:0", None, HttpLimits()):
        pass


def test_a_call_outlasts_a_start_that_takes_longer_than_its_patience() -> None:
    said: list[str] = []
    with answering(*[STARTING] * 4, value({"a": 1})) as stub:
        calls = HttpClient(stub.url, patience=0)
        calls.on_outage = said.append
        assert calls.json("GET", "/x") == b'{"a": 1}'
    away, back = said
    assert away.startswith("the server is starting, since 12.5 s")
    assert away.endswith("; retrying for 900 s")
    assert back == "the server responds again"


def test_a_start_has_a_bound_as_well() -> None:
    with answering(STARTING) as stub, pytest.raises(ServerStarting) as late:
        HttpClient(stub.url, patience=0, starting=0.5).json("GET", "/x")
    assert late.value.seconds == 12.5
    assert len(stub.asked) > 1


def test_a_server_that_goes_away_while_it_starts_is_not_waited_for_as_long() -> None:
    with answering(STARTING, LOST) as stub, pytest.raises(ServerUnreachable):
        HttpClient(stub.url, patience=0).json("GET", "/x")
    assert len(stub.asked) == 2


def test_bounds_of_a_call_count_from_the_first_failure_of_their_kind() -> None:
    bounds = _RetryBound(patience=60, starting=900)
    lost, starting = ConnectionLost("refused"), ServerStarting(1)
    assert bounds.deadline(lost, 0) == 60
    assert bounds.deadline(lost, 10) == 60
    assert bounds.deadline(starting, 20) == 920
    assert bounds.deadline(starting, 500) == 920
    assert bounds.deadline(lost, 510) == 570
    assert bounds.deadline(starting, 520) == 920
