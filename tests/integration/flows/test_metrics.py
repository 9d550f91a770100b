"""Figures of open runs, in the text that Prometheus reads."""

from __future__ import annotations

from http.client import HTTPConnection

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.flows.calls import Start
from tests.integration.flows.conftest import ITEMS, Hand
from tests.integration.flows.declared import approved, gated, offset
from tests.integration.flows.test_waiting import is_suspended
from tests.waiting import wait_until
from tidegate.errors import InvalidListen
from tidegate.flows import Context, Flow, reached
from tidegate.flows.client import start_flow
from tidegate.flows.metrics import metrics_text, serve_metrics
from tidegate.flows.model.gates import Condition
from tidegate.store import Database
from tidegate.store.flows import runs as store
from tidegate.store.flows import tasks
from tidegate.store.flows.metrics import GAUGES, flow_gauges


def series(name: str, **labels: object) -> str:
    """A metric with its labels, as `figures` names it."""
    return f"{name}{ {key: str(labels[key]) for key in sorted(labels)} }"


def figures(database: Database) -> dict[str, float]:
    """Each series and its number; times are whatever they are."""
    families = text_string_to_metric_families(metrics_text(database))
    samples = (sample for family in families for sample in family.samples)
    return {series(sample.name, **sample.labels): sample.value for sample in samples}


def test_items_are_counted_by_what_became_of_them(hand: Hand) -> None:
    run, generator = hand.generating()
    hand.do(store.tolerate, run, "count_up", 5, None)
    hand.spawn(generator, range(7))
    claims = hand.claim(ITEMS, room=4)
    hand.complete(claims[:2])
    hand.do(tasks.fail, claims[2], "broken", 0.0, is_final=True)
    found, of_step = figures(hand.database), {"flow": "numbers", "run": run, "step": "count_up"}
    counts = {
        name: found[series(f"tidegate_flow_items_{name}", **of_step)]
        for name in ("spawned", "succeeded", "failed", "canceled", "in_flight")
    }
    expected = {"spawned": 7, "succeeded": 2, "failed": 1, "canceled": 0, "in_flight": 4}
    assert counts == expected
    assert found[series("tidegate_flow_runs", flow="numbers", state="running")] == 1
    assert found[series("tidegate_flow_ready_seconds", flow="numbers", step="count_up")] >= 0
    assert found[series("tidegate_flow_workers")] == 1


def test_a_gate_is_reported_with_its_state_age_and_what_it_lacks(work: Start, hand: Hand) -> None:
    flow = Flow("lagging")
    position = flow.state("position", float, external=True)
    mark = flow.state("mark", float, external=True)
    flow.state("name", str, external=True)
    is_on = flow.state("is_on", bool, external=True)
    flow.step(wait_for=reached(position, mark))(answer)
    works = work(flow)
    run = start_flow(works.database, flow)
    for key, value in ((position, 4100.5), (mark, 5000), (is_on, True), (flow.keys["name"], "x")):
        run.set_state(key, value, "a feed")
    wait_until(lambda: is_suspended(hand, run.id))
    found, of_run = figures(works.database), {"flow": "lagging", "run": run.id}
    of_step = {**of_run, "step": "answer"}
    assert found[series("tidegate_flow_wait_behind", **of_step, key="position")] == 899.5
    assert series("tidegate_flow_wait_behind", **of_step, key="mark") not in found
    assert found[series("tidegate_flow_wait_seconds", **of_step)] > 0
    values = {
        key: found.get(series("tidegate_flow_state_value", **of_run, key=key))
        for key in ("position", "mark", "is_on", "name")
    }
    assert values == {"position": 4100.5, "mark": 5000, "is_on": 1, "name": None}
    assert found[series("tidegate_flow_state_age_seconds", **of_run, key="name")] >= 0


def test_closed_runs_have_no_figures(hand: Hand) -> None:
    run = hand.begin(gated, "5")
    hand.do(store.set_external_state, run, "offset", "3", "a feed")
    hand.do(store.cancel_flow, run, "enough")
    assert set(figures(hand.database)) == {series("tidegate_flow_workers")}


def test_there_are_figures_of_so_many_runs_at_most(hand: Hand) -> None:
    first, *_ = [hand.begin(approved, '"?"') for _ in range(5)]
    gauges = {it.name: it.samples for it in hand.do(flow_gauges, 1)}
    assert list(gauges) == list(GAUGES)
    ((labels, _),) = gauges["tidegate_flow_run_open_seconds"]
    assert labels == {"flow": "approved", "run": str(first), "state": "running"}
    assert [number for _, number in gauges["tidegate_flow_runs"]] == [5]


def test_a_run_that_is_being_cancelled_is_reported_as_such(hand: Hand) -> None:
    run = hand.begin(approved, '"?"')
    hand.claim("approved/ask")
    hand.do(store.cancel_flow, run, "enough")
    labels = {"flow": "approved", "run": run, "state": "canceling"}
    assert series("tidegate_flow_run_open_seconds", **labels) in figures(hand.database)


def ask(port: int, path: str) -> tuple[int, str, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read().decode()
    finally:
        connection.close()


def test_figures_are_served_on_loopback(hand: Hand) -> None:
    run = hand.begin(gated, "5")
    hand.do(store.set_external_state, run, offset.name, "3", "a feed")
    with serve_metrics(hand.database, 0) as port:
        status, content, text = ask(port, "/metrics")
        assert (status, content.partition(";")[0]) == (200, "text/plain")
        assert f'tidegate_flow_state_value{{flow="gated",key="offset",run="{run}"}} 3.0\n' in text
        assert ask(port, "/")[0] == 404
        with pytest.raises(InvalidListen), serve_metrics(hand.database, port):
            pass


def test_a_database_that_does_not_answer_is_an_error_of_the_server(hand: Hand) -> None:
    with serve_metrics(hand.database, 0) as port:
        hand.database.close()
        assert ask(port, "/metrics")[0] == 503


def answer(context: Context) -> int:
    return 1


def test_runs_that_have_failed_are_counted_until_they_are_tried_again(hand: Hand) -> None:
    run, generator = hand.generating()
    hand.do(tasks.fail, generator, "broken", 0.0, is_final=True)
    failures = series("tidegate_flow_runs_failed", flow="numbers")
    assert figures(hand.database)[failures] == 1
    hand.do(store.retry_flow, run)
    assert failures not in figures(hand.database)


@pytest.mark.parametrize(
    ("written", "told"),
    [("9" * 400, float("inf")), ("-1e4000", -float("inf")), ("1e-4000", 0), ("1.5e300", 1.5e300)],
)
def test_a_number_that_is_too_large_for_a_float_is_reported_as_infinite(
    hand: Hand, written: str, told: float
) -> None:
    run = hand.begin(gated, "5")
    hand.ask("UPDATE tidegate.flow_state SET type = NULL RETURNING 1")  # as earlier releases do
    hand.do(store.set_external_state, run, "offset", written, "psql")
    (switch,) = hand.claim("gated/switch")
    gate = [Condition("offset", None, "9" * 500)]
    hand.do(tasks.record_gate, switch, gate)
    hand.do(tasks.suspend, switch, ["offset"], 1, 0, 0.0, None)
    found = figures(hand.database)
    of_key = {"flow": "gated", "run": run, "key": "offset"}
    assert found[series("tidegate_flow_state_value", **of_key)] == told
    assert found[series("tidegate_flow_wait_behind", **of_key, step="switch")] == float("inf")
