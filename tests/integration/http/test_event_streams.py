"""Status, `why`, events and cancelling, while a run is on its way."""

from __future__ import annotations

from collections.abc import Iterator
from http.client import HTTPConnection
from itertools import takewhile
from pathlib import Path
from threading import active_count

from tests.integration.http.conftest import ANN, BEN, Asking, RunAsking
from tests.integration.http.test_whole_run import complete
from tests.waiting import wait_until
from tidegate.http import HttpAddress, TokenFile, serve_http
from tidegate.http.auth.tokens import digest_of
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.service import PipelineService

Event = dict[str, str]


def heard(run: RunAsking, **headers: str) -> list[Event]:
    """Everything until the stream ends."""
    text = run.get("/events", **headers).body.decode()
    return [parsed(block) for block in text.split("\n\n") if block and not block.startswith(":")]


def parsed(block: str) -> Event:
    pairs = (line.partition(": ") for line in block.splitlines())
    return {name: value for name, _, value in pairs}


def kinds(events: list[Event]) -> list[str]:
    return [event["event"] for event in events]


def test_events_are_progress_then_every_sink_once_then_complete(
    ann: Asking,
) -> None:
    run = ann.run("told")
    connection, lines = follow(run)
    try:
        assert next(lines) == "event: progress"
        run.sell()
        after = list(takewhile(lambda line: line != "event: complete", lines))
    finally:
        connection.close()
    assert after[-2:] == ["event: query-end", "event: query-end"]
    assert set(after[:-2]) <= {"event: progress"}
    again = heard(run)
    assert kinds(again) == ["query-end", "query-end", "complete"]
    assert [event["data"] for event in again[:2]] == [
        '{"sink":"best","rows":1}',
        '{"sink":"bulk","rows":0}',
    ]


def follow(run: RunAsking) -> tuple[HTTPConnection, Iterator[str]]:
    """The kinds of events as they come."""
    at = run.asking.at
    connection = HTTPConnection(at.host, at.port, timeout=60)
    path = f"/pipelines/shop/runs/{run.name}/events"
    token = run.asking.token
    connection.request("GET", path, headers={"authorization": f"Bearer {token}"} if token else {})
    answer = connection.getresponse()
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = (line.decode().strip() for line in iter(answer.readline, b""))
    return connection, (line for line in lines if line.startswith("event:"))


def test_a_reconnect_continues_after_the_last_event_also_of_an_earlier_run_of_the_name(
    ann: Asking,
) -> None:
    run = ann.run("resumed")
    run.sell()
    complete(run)
    first = heard(run)
    assert kinds(heard(run, last_event_id=first[0]["id"])) == ["query-end", "complete"]
    ann.run("resumed").post("/cancel")
    assert kinds(heard(run)) == ["cancelled"]
    assert kinds(heard(run, last_event_id=first[1]["id"])) == ["complete"]


def test_why_names_what_a_run_waits_for_and_status_how_far_it_is(ann: Asking) -> None:
    run = ann.run("waiting")
    run.put("sales", 2, b"item_id,quantity\n1,2\n")
    run.post("/sources/sales/end", {"chunks": 3})
    why = run.get("/why").json
    assert "source sales lacks 2 of 3 chunks: 1, 3" in why["why"]
    assert {reason["subject"] for reason in why["reasons"]} >= {"source sales", "source items"}
    status = run.get().json
    (sales,) = (it for it in status["sources"] if it["name"] == "sales")
    assert (sales["delivered"], sales["declared"], sales["missing"]) == (1, 3, [1, 3])
    assert status["stages"]


def test_what_is_there_of_a_source_is_listed_page_by_page(ann: Asking) -> None:
    run = ann.run("pages")
    for number in (1, 2, 4):
        run.put("sales", number, f"item_id,quantity\n1,{number}\n".encode())
    found = run.get("/sources/sales").json
    assert (found["delivered"], found["declared"], found["is_ended"]) == (3, None, False)
    assert [chunk["number"] for chunk in found["chunks"]] == [1, 2, 4]
    assert len({chunk["sha256"] for chunk in found["chunks"]}) == 3
    page = run.get("/sources/sales?after=1&limit=1").json["chunks"]
    assert [chunk["number"] for chunk in page] == [2]


def test_a_run_is_cancelled_once_and_its_name_may_be_used_again(ann: Asking) -> None:
    run = ann.run("given-up")
    assert run.post("/cancel").json["state"] == "cancelled"
    assert run.post("/cancel").refusal == (409, "NothingToCancel")
    assert run.put("sales", 1, b"item_id,quantity\n1,2\n").refusal == (409, "RunEnded")
    assert run.get("/results").refusal == (409, "RunCancelled")
    assert kinds(heard(run)) == ["cancelled"]
    assert ann.run("given-up").get().json["run"]["incarnation"] == 2


def test_a_failed_run_has_its_cause_in_events_and_results(ann: Asking) -> None:
    run = ann.run("too-much")
    run.sell("tea", 2_147_483_647)
    assert kinds(heard(run))[-1] == "failed"
    refused = run.get("/results/best")
    assert refused.refusal == (409, "RunFailed")
    assert "ann/" not in refused.body.decode()


def test_a_server_that_stops_lets_its_followers_go_and_leaves_no_thread(
    service: PipelineService, place: Deployment, ann: Asking
) -> None:
    before = active_count()
    with serve_http(service, place, "127.0.0.1:0") as listening:
        run = Asking(listening, None).run("stopped")
        connection, lines = follow(run)
        assert next(lines) == "event: progress"
    assert list(lines) == []
    connection.close()
    wait_until(lambda: active_count() <= before)


def test_a_follower_whose_token_is_withdrawn_is_let_go(
    service: PipelineService, place: Deployment, tmp_path: Path
) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"ann: {digest_of(ANN)}\n")
    with serve_http(service, place, "127.0.0.1:0", TokenFile(file)) as listening:
        run = Asking(listening).run("withdrawn")
        connection, lines = follow(run)
        assert next(lines) == "event: progress"
        file.write_text(f"ben: {digest_of(BEN)}\n")
        assert set(lines) <= {"event: progress"}  # and the stream has an end
        connection.close()
        assert run.get().refusal == (401, "UnknownToken")


def test_a_follower_that_goes_away_is_not_followed_up(ann: Asking, listening: HttpAddress) -> None:
    run = ann.run("left")
    connection, lines = follow(run)
    assert next(lines) == "event: progress"
    connection.close()
    assert run.post("/cancel").status == 200
