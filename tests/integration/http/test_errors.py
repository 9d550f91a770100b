"""What a client does wrong is told by a status and a condition, and nothing of it stays."""

from __future__ import annotations

import gzip
import io
import socket
from collections.abc import Callable

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.integration.http.conftest import ANN, MOST, TOKENS, Asking, RunAsking, spooled
from tests.integration.runtime.shop import ask, files_of
from tests.waiting import wait_until
from tidegate.errors import DatabaseUnreachable
from tidegate.http import HttpAddress, HttpLimits, serve_http
from tidegate.http.client_api import ClientApi
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.service import PipelineService

SALES = b"item_id,quantity\n1,2\n"


@pytest.fixture
def run(ann: Asking, request: pytest.FixtureRequest) -> RunAsking:
    """A run for this test alone."""
    return ann.run(f"run-{abs(hash(request.node.name))}")


def recorded(place: Deployment, run: RunAsking) -> list[tuple[object, ...]]:
    stored = f"ann/{run.name}"
    return ask(
        place.database,
        "SELECT number FROM tidegate.chunk JOIN tidegate.run ON run.id = run_id WHERE name = %s"
        " ORDER BY number",
        stored,
    )


def number_of(run: RunAsking) -> int:
    return int(run.get().json["run"]["id"])


def stored_as_text() -> bytes:
    sink = io.BytesIO()
    parquet.write_table(pa.table({"item_id": ["one"], "quantity": [3]}), sink)
    return sink.getvalue()


BAD_CHUNKS: dict[str, tuple[int, str, str, bytes]] = {
    "a value of another type": (422, "BadValue", "csv", b"item_id,quantity\n1,two\n"),
    "a line too long": (422, "BadLine", "csv", b"item_id,quantity\n1,2,3\n"),
    "a column too few": (422, "MissingColumns", "csv", b"item_id\n1\n"),
    "nothing": (422, "MissingColumns", "csv", b""),
    "garbage for Parquet": (422, "UnreadableChunk", "parquet", b"PAR1 and so on"),
    "garbage for Arrow": (422, "UnreadableChunk", "arrow", b"ARROW1 and so on"),
    "garbage for gzip": (422, "UnreadableChunk", "csv.gz", b"\x1f\x8b and so on"),
    "a column of another type": (422, "WrongColumnType", "parquet", stored_as_text()),
    "another format": (415, "UnknownUploadFormat", "xlsx", SALES),
    "more than is taken": (413, "ChunkTooLarge", "csv", SALES + b"1,2\n" * MOST),
}


@pytest.mark.parametrize("what", BAD_CHUNKS)
def test_a_bad_chunk_is_refused_by_its_kind_and_leaves_nothing(
    what: str, run: RunAsking, place: Deployment
) -> None:
    status, condition, form, body = BAD_CHUNKS[what]
    answer = run.put("sales", 1, body, form)
    assert answer.refusal == (status, condition), answer.body
    assert not answer.json["retryable"]
    assert str(place.root) not in answer.body.decode()
    assert "ann/" not in answer.body.decode()
    assert recorded(place, run) == []
    assert files_of(place, number_of(run)) == []
    assert spooled(place) == []
    assert run.put("sales", 1, SALES).status == 201


def test_a_refused_value_is_reported_with_its_line_and_column(run: RunAsking) -> None:
    refused = run.put("sales", 1, b"item_id,quantity\n1,2\n1,two\n").json
    fields = refused["fields"]
    assert (fields["line"], fields["column"], fields["value"]) == (3, "quantity", "two")
    assert refused["message"].startswith("chunk 1 of sales, line 3: quantity is 'two'")


def test_a_chunk_that_is_too_large_is_refused_although_it_does_not_say_so_beforehand(
    run: RunAsking, listening: HttpAddress, place: Deployment
) -> None:
    answer = upload(listening, run, ["transfer-encoding: chunked"], chunked(b"x" * (MOST + 1)))
    assert b" 413 " in answer.splitlines()[0]
    assert b"ChunkTooLarge" in answer
    assert (recorded(place, run), spooled(place)) == ([], [])


def chunked(body: bytes) -> bytes:
    return f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n"


def upload(listening: HttpAddress, run: RunAsking, headers: list[str], body: bytes) -> bytes:
    """Send this, then nothing more; everything that comes back."""
    path = f"/pipelines/shop/runs/{run.name}/sources/sales/chunks/1?format=csv"
    lines = [f"PUT {path} HTTP/1.1", "host: localhost", f"authorization: Bearer {ANN}", *headers]
    with socket.create_connection((listening.host, listening.port), timeout=60) as sent:
        sent.sendall("\r\n".join([*lines, "connection: close", "", ""]).encode() + body)
        sent.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: sent.recv(1 << 16), b""))


@pytest.mark.parametrize("headers", [["content-length: 1000"], ["transfer-encoding: chunked"]])
def test_an_interrupted_upload_leaves_nothing_and_may_be_repeated(
    headers: list[str], run: RunAsking, listening: HttpAddress, place: Deployment
) -> None:
    checkpoint = SALES if "content-length" in headers[0] else b"3e8\r\n" + SALES
    upload(listening, run, headers, checkpoint)
    wait_until(lambda: spooled(place) == [])
    assert recorded(place, run) == []
    assert run.put("sales", 1, SALES).status == 201


def test_the_same_chunk_again_is_harmless_and_another_one_in_its_place_is_a_conflict(
    run: RunAsking, place: Deployment
) -> None:
    assert run.put("sales", 1, SALES).status == 201
    assert run.put("sales", 1, SALES).status == 200
    assert run.put("sales", 1, SALES + b"1,3\n").refusal == (409, "ChunkConflict")
    assert recorded(place, run) == [(1,)]
    zipped = run.put("sales", 2, gzip.compress(SALES), "csv.gz")
    assert zipped.status == 201


def test_after_the_end_of_a_source_nothing_more_is_taken(run: RunAsking) -> None:
    assert run.put("sales", 1, SALES).status == 201
    assert run.post("/sources/sales/end", {"chunks": 1}).status == 200
    assert run.post("/sources/sales/end", {"chunks": 1}).status == 200
    assert run.put("sales", 2, SALES).refusal == (409, "SourceEnded")
    assert run.post("/sources/sales/end", {"chunks": 2}).refusal == (409, "CountConflict")


def test_a_source_with_gaps_does_not_end_by_itself(run: RunAsking) -> None:
    run.put("sales", 3, SALES)
    refused = run.post("/sources/sales/end")
    assert refused.refusal == (409, "ChunksMissing")
    assert refused.json["fields"]["missing"] == [1, 2]


@pytest.mark.parametrize(
    ("ask", "refusal"),
    [
        (lambda run: run.put("tea", 1, SALES), (404, "UnknownSource")),
        (lambda run: run.get("/sources/tea"), (404, "UnknownSource")),
        (lambda run: run.post("/sources/tea/end"), (404, "UnknownSource")),
        (lambda run: run.put("sales", 0, SALES), (400, "InvalidChunkNumber")),
        (lambda run: run.put("sales", 2**63, SALES), (400, "InvalidChunkNumber")),
        (lambda run: run.put("sales", 10**30, SALES), (400, "InvalidRequest")),
        (lambda run: run.put("sales", "0" * 19 + "12", SALES), (400, "InvalidRequest")),
        (lambda run: run.put("sales", "one", SALES), (400, "InvalidRequest")),
        (lambda run: run.post("/sources/sales/end", {"chunks": -1}), (400, "InvalidRequest")),
        (lambda run: run.post("/sources/sales/end", {"chunk": 1}), (400, "InvalidRequest")),
        (lambda run: run.post("/sources/sales/end", [1]), (400, "InvalidRequest")),
        (lambda run: run.get("/sources/sales?limit=many"), (400, "InvalidRequest")),
        (lambda run: run.get(f"/sources/sales?after={'9' * 5000}"), (400, "InvalidRequest")),
        (lambda run: run.get("/results"), (409, "ResultsNotReady")),
        (lambda run: run.get("/results/best"), (409, "ResultsNotReady")),
        (lambda run: run.get("/results/best?format=xlsx"), (406, "UnknownResultFormat")),
        (lambda run: run.get("/nothing"), (404, "NoSuchRoute")),
        (lambda run: run.post("/why"), (405, "WrongMethod")),
        (lambda run: run.asking("GET", "/pipelines/tea/runs"), (404, "UnknownPipeline")),
        (lambda run: run.asking("GET", "/pipelines/shop/runs/april"), (404, "UnknownRun")),
        (lambda run: run.asking("GET", "/pipelines/shop/runs/-"), (400, "InvalidRunName")),
        (
            lambda run: run.asking("POST", "/pipelines/shop/runs", {"run": run.name}),
            (409, "RunExists"),
        ),
        (
            lambda run: run.asking("POST", "/pipelines/shop/runs", {"run": "a/b"}),
            (400, "InvalidRunName"),
        ),
        (lambda run: run.asking("POST", "/pipelines/shop/runs", b"{"), (400, "InvalidRequest")),
        (lambda run: run.asking("POST", "/pipelines/shop/runs", {}), (400, "InvalidRequest")),
        (
            lambda run: run.asking("POST", "/pipelines/shop/runs", b" " * (1 << 17)),
            (400, "InvalidRequest"),
        ),
    ],
)
def test_unknown_and_invalid_addresses_are_named_errors(
    ask: Callable[[RunAsking], object], refusal: tuple[int, str], run: RunAsking
) -> None:
    answer = ask(run)
    assert getattr(answer, "refusal", None) == refusal
    assert set(getattr(answer, "json", {})) == {"condition", "message", "fields", "retryable"}


def test_a_wrong_method_gets_the_allowed_ones(ann: Asking) -> None:
    answer = ann("DELETE", "/pipelines/shop/runs")
    assert answer.refusal == (405, "WrongMethod")
    assert {"GET", "POST"} <= set(answer.headers["allow"].split(", "))


def test_beginning_a_run_twice_with_one_key_begins_one(ann: Asking) -> None:
    def begin(key: str) -> tuple[int, int | None]:
        path, asked = "/pipelines/shop/runs", {"run": "begun-twice"}
        answer = ann("POST", path, asked, idempotency_key=key)
        return answer.status, answer.json.get("id")

    first = begin("one")
    assert begin("one") == first
    assert begin("two") == (409, None)


@pytest.mark.parametrize(
    "other", [{"run": "another"}, {"run": "begun-once", "deadline": 60}, {"run": "begun-once"}]
)
def test_the_same_key_with_another_body_begins_no_second_run(
    other: dict[str, object], ann: Asking, ben: Asking
) -> None:
    path, key = "/pipelines/shop/runs", f"key of {other}"
    asked = {"run": f"begun-once{len(other)}{other['run']}", "warn_after": 60}
    first = ann("POST", path, asked, idempotency_key=key)
    refused = ann("POST", path, other, idempotency_key=key)
    assert refused.refusal == (422, "IdempotencyConflict")
    assert refused.json["fields"] == {"run": asked["run"]}
    repeated = ann("POST", path, dict(reversed(asked.items())), idempotency_key=key)
    assert repeated.json == first.json
    assert ben("POST", path, asked, idempotency_key=key).status == 201


def test_an_upload_that_does_not_go_on_is_given_up_and_leaves_nothing(
    service: PipelineService, place: Deployment
) -> None:
    with serve_http(service, place, "127.0.0.1:0", TOKENS, HttpLimits(MOST, gap=0.2)) as listening:
        run = Asking(listening).run("stalled")
        path = "/pipelines/shop/runs/stalled/sources/sales/chunks/1?format=csv"
        head = [f"PUT {path} HTTP/1.1", "host: localhost", f"authorization: Bearer {ANN}"]
        lines = [*head, "content-length: 1000", "", ""]
        with socket.create_connection((listening.host, listening.port), timeout=60) as sending:
            sending.sendall("\r\n".join(lines).encode() + SALES)
            answer = sending.recv(1 << 16)
        assert b" 408 " in answer.splitlines()[0]
        wait_until(lambda: spooled(place) == [])
        assert recorded(place, run) == []


def test_a_defect_of_the_server_is_reported_without_traceback(
    ann: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a secret of the house")

    monkeypatch.setattr(ClientApi, "runs", fail)
    answer = ann("GET", "/pipelines/shop/runs")
    assert answer.refusal == (500, "ServerFailed")
    assert b"secret" not in answer.body
    assert b"Traceback" not in answer.body


def test_a_database_that_is_away_is_a_passing_trouble_without_an_address(
    ann: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise DatabaseUnreachable("shop on db.example:5433", 60, "refused")

    monkeypatch.setattr(ClientApi, "runs", fail)
    answer = ann("GET", "/pipelines/shop/runs")
    assert answer.refusal == (503, "ServerTrouble")
    assert answer.json["retryable"]
    assert b"db.example" not in answer.body
