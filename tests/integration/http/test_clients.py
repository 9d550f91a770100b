"""One client never sees or touches what is another's."""

from __future__ import annotations

import socket

import pytest

from tests.integration.http.conftest import ANN, Asking, RunAsking
from tests.integration.http.test_whole_run import complete
from tests.waiting import wait_until
from tidegate.errors import InvalidListen, UnsafeListen
from tidegate.http import HttpAddress, serve_http
from tidegate.runtime import service as services
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.service import PipelineService
from tidegate.store.core import database

ASKED = [
    ("GET", ""),
    ("GET", "/state"),
    ("GET", "/why"),
    ("GET", "/events"),
    ("GET", "/results"),
    ("GET", "/results/best"),
    ("GET", "/sources/sales"),
    ("POST", "/cancel"),
    ("POST", "/sources/sales/end"),
    ("PUT", "/sources/sales/chunks/1?format=csv"),
]


@pytest.mark.parametrize(("method", "path"), ASKED)
def test_a_run_of_another_client_is_as_unknown_as_one_that_never_was(
    method: str, path: str, ann: Asking, ben: Asking
) -> None:
    name = f"private{abs(hash((method, path)))}"
    run = ann.run(name)
    there = ben(method, f"/pipelines/shop/runs/{name}{path}", b"")
    nowhere = ben(method, f"/pipelines/shop/runs/nowhere{path}", b"")
    assert there.refusal == nowhere.refusal == (404, "UnknownRun")
    assert there.body.replace(name.encode(), b"nowhere") == nowhere.body
    assert run.get().json["run"]["state"] == "open"
    assert name not in str(ben("GET", "/pipelines/shop/runs").json)
    assert name in str(ann("GET", "/pipelines/shop/runs").json)


def test_two_clients_may_use_the_same_name_and_each_gets_its_own_results(
    ann: Asking, ben: Asking
) -> None:
    runs = {"tea": ann.run("may"), "coffee": ben.run("may")}
    for item, run in runs.items():
        run.sell(item)
    for item, run in runs.items():
        complete(run)
        assert run.get("/results/best").body == f"item_name,sold\n{item},7000\n".encode()
    listed = [it["run"]["name"] for it in ben("GET", "/pipelines/shop/runs").json["runs"]]
    assert listed.count("may") == 1
    assert not any("/" in name for name in listed)


def test_a_followers_id_of_anothers_run_leads_nowhere(ann: Asking, ben: Asking) -> None:
    theirs = ann.run("followed").get().json["run"]["id"]
    mine = RunAsking(ben, ben.run("followed").name)
    mine.post("/cancel")
    heard = mine.get("/events", last_event_id=f"{theirs}.0").body
    assert b"event: cancelled" in heard
    assert f"id: {theirs}.".encode() not in heard


@pytest.mark.parametrize("token", [None, "", "wrong", "ann"])
@pytest.mark.parametrize("path", ["/pipelines", "/pipelines/shop/runs", "/pipelines/tea/runs/x"])
def test_without_a_known_token_nothing_is_revealed(
    token: str | None, path: str, listening: HttpAddress
) -> None:
    answer = Asking(listening, token)("GET", path)
    assert answer.refusal == (401, "UnknownToken")
    assert answer.headers["www-authenticate"] == "Bearer"


def test_health_needs_no_token(listening: HttpAddress) -> None:
    assert Asking(listening, None)("GET", "/health").json == {"status": "ok"}


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_without_tokens_an_address_that_others_reach_is_refused(
    address: str, service: PipelineService, place: Deployment
) -> None:
    with pytest.raises(UnsafeListen), serve_http(service, place, address):
        pass


@pytest.mark.parametrize("address", ["", "8420", "localhost:", "localhost:http", "127.0.0.1:99999"])
def test_what_is_no_address_is_refused(
    address: str, service: PipelineService, place: Deployment
) -> None:
    with pytest.raises(InvalidListen), serve_http(service, place, address):
        pass


def test_an_address_that_is_taken_is_refused(
    listening: HttpAddress, service: PipelineService, place: Deployment
) -> None:
    taken = f"{listening.host}:{listening.port}"
    with pytest.raises(InvalidListen, match="in use"), serve_http(service, place, taken):
        pass


def test_without_tokens_this_machine_is_one_client_and_web_pages_are_none(
    service: PipelineService, place: Deployment
) -> None:
    with serve_http(service, place, "127.0.0.1:0") as listening:
        local = Asking(listening, None)
        local.run("june").sell()
        run = RunAsking(local, "june")
        wait_until(lambda: run.get("/state").json["run"]["state"] == "ended", 90)
        foreign = run.get(origin="https://evil.example")
        assert foreign.refusal == (403, "ForeignOrigin")
        assert run.get(host="evil.example").refusal == (403, "ForeignOrigin")
        neighbour = run.get(origin="http://localhost:3000")
        assert neighbour.refusal == (403, "ForeignOrigin")
        proxied = run.get(x_forwarded_for="203.0.113.7", x_forwarded_proto="https")
        assert proxied.refusal == (403, "ProxiedRequest")
        assert Asking(listening, ANN)("GET", "/pipelines").refusal == (400, "UnexpectedToken")


def test_with_tokens_a_proxy_may_be_in_front(ann: Asking) -> None:
    assert ann("GET", "/pipelines", x_forwarded_for="203.0.113.7").status == 200


def test_health_reports_a_lost_database(
    place: Deployment, ann: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, says nothing
        url = f"postgresql://127.0.0.1:{silent.getsockname()[1]}/none"
        monkeypatch.setattr(place.database, "url", url)
        monkeypatch.setattr(database, "CHECKED_FOR", 0.0)
        wait_until(lambda: ann("GET", "/health").status != 200)
        answer = ann("GET", "/health")
    assert answer.refusal == (503, "ServerTrouble")
    assert answer.json["fields"] == {"trouble": "DatabaseUnreachable"}


def test_health_reports_a_lost_spark(ann: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "why_ended", lambda _: "Java (pid 7) ended with signal 9")
    answer = ann("GET", "/health")
    assert answer.refusal == (503, "ServerTrouble")
    assert answer.json["fields"] == {"trouble": "SparkLost"}
