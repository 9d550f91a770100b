"""A client that goes on while there is hope, and says why when there is none."""

from __future__ import annotations

import socket
from pathlib import Path
from time import monotonic

import pytest

from tests.unit.http.stub import LOST, Reply, answering, refusal, value
from tidegate.errors import (
    BadValue,
    ChunkConflict,
    InvalidServer,
    NoSecureConnection,
    NoSpace,
    PlainHttpToken,
    RefusedByServer,
    ServerUnreachable,
)
from tidegate.http import HttpClient


@pytest.mark.parametrize(
    "trouble",
    [
        LOST,
        Reply(body=b'{"a": 1}', missing=3),
        Reply(502, b"<html>"),
        refusal(NoSpace("a disk")),
    ],
    ids=["no answer", "half an answer", "a proxy's error", "a passing refusal"],
)
def test_a_call_is_repeated_until_it_is_answered(trouble: Reply) -> None:
    with answering(trouble, trouble, value({"a": 1})) as stub:
        assert HttpClient(stub.url).json("GET", "/x") == b'{"a": 1}'
    assert len(stub.asked) == 3


def test_a_refusal_for_good_is_raised_at_once_as_what_it_is() -> None:
    error = ChunkConflict("march", "sales", 1, "a" * 64, "b" * 64)
    with answering(refusal(error)) as stub, pytest.raises(ChunkConflict) as refused:
        HttpClient(stub.url).json("GET", "/x")
    assert str(refused.value) == str(error)
    assert len(stub.asked) == 1


def test_a_response_of_a_proxy_is_reported_as_such() -> None:
    with answering(Reply(403, b"<html>")) as stub, pytest.raises(RefusedByServer, match="403"):
        HttpClient(stub.url).json("GET", "/x")


def test_patience_has_an_end_and_the_last_reason_is_raised() -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    started = monotonic()
    with pytest.raises(ServerUnreachable) as lost:
        HttpClient(f"http://127.0.0.1:{port}", patience=0.5).json("GET", "/x")
    assert monotonic() - started < 30
    assert "refused" in lost.value.reason.lower()
    assert lost.value.seconds == 0.5


def test_an_outage_and_its_end_are_reported_once() -> None:
    said: list[str] = []
    with answering(*[LOST] * 5, *[value({})] * 2) as stub:
        calls = HttpClient(stub.url, patience=50)
        calls.on_outage = said.append
        calls.json("GET", "/x")
        calls.json("GET", "/x")
    away, back = said
    assert away.startswith("the server does not respond (")
    assert away.endswith("; retrying for 50 s")
    assert back == "the server responds again"


def test_a_call_that_is_lost_for_a_moment_is_not_worth_a_word() -> None:
    said: list[str] = []
    with answering(LOST, value({})) as stub:
        calls = HttpClient(stub.url)
        calls.on_outage = said.append
        calls.json("GET", "/x")
    assert said == []


def test_a_server_that_speaks_no_tls_is_not_asked_again() -> None:
    with answering(value({})) as stub, pytest.raises(NoSecureConnection) as refused:
        HttpClient(stub.url.replace("http:", "https:")).json("GET", "/x")
    assert refused.value.server.startswith("https:")


def test_a_passing_refusal_that_does_not_pass_is_raised_in_the_end() -> None:
    with answering(refusal(NoSpace("a disk"))) as stub, pytest.raises(NoSpace):
        HttpClient(stub.url, patience=0.3).json("GET", "/x")
    assert len(stub.asked) > 1


def test_the_same_call_is_known_by_its_key_and_the_client_by_its_token() -> None:
    with answering(LOST, value({})) as stub:
        HttpClient(stub.url, "secret").json("POST", "/x", {"run": "march"}, key="k")
    first, second = stub.asked
    assert first == second
    assert first.body == b'{"run": "march"}'
    assert first.headers["idempotency-key"] == "k"
    assert first.headers["authorization"] == "Bearer secret"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirection_is_a_refusal_and_takes_the_token_to_no_other_server(status: int) -> None:
    with answering(value({})) as other:
        away = Reply(status, b"", location=f"{other.url}/x")
        with answering(away) as stub, pytest.raises(RefusedByServer, match=str(status)):
            HttpClient(stub.url, "secret").json("GET", "/x")
    assert other.asked == []


@pytest.mark.parametrize("url", ["http://10.0.0.1", "http://localhost.example", "http://[fe80::1]"])
def test_a_token_needs_tls_to_leave_this_machine_unless_that_is_allowed(url: str) -> None:
    with pytest.raises(PlainHttpToken):
        HttpClient(url, "secret")
    HttpClient(url)
    HttpClient(url, "secret", allow_plain_http=True)
    HttpClient(url.replace("http:", "https:"), "secret")


def test_a_file_is_sent_from_its_beginning_every_time(tmp_path: Path) -> None:
    file = tmp_path / "1.csv"
    file.write_bytes(b"a,b\n" * 50_000)
    with answering(LOST, value({})) as stub:
        HttpClient(stub.url).send("/x", file, file.stat().st_size)
    assert [len(asked.body) for asked in stub.asked] == [200_000, 200_000]


def test_an_incomplete_result_is_read_from_its_beginning() -> None:
    with answering(Reply(body=b"a" * 10, missing=4), Reply(body=b"b" * 10)) as stub:
        assert HttpClient(stub.url).fetch("/x", b"".join) == b"b" * 10


def test_what_taking_a_result_raises_is_not_taken_for_a_loss() -> None:
    def refuse(_: object) -> None:
        raise BadValue("s", "f", "c", "v", "int")

    with answering(value({})) as stub, pytest.raises(BadValue):
        HttpClient(stub.url).fetch("/x", refuse)


@pytest.mark.parametrize("url", ["", "127.0.0.1:8420", "ftp://x", "http://", "http://x:port"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InvalidServer):
        HttpClient(url)
