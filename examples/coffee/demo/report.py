"""The report at the end of the demo: completeness, and a few rows of every result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tidegate.store import overview
from tidegate_examples.coffee import pipeline
from tidegate_examples.coffee.demo.answers import Answers, differing, released_answers
from tidegate_examples.coffee.demo.progress import released

if TYPE_CHECKING:
    from tidegate_examples.coffee.demo.state import DemoState
    from tidegate_examples.demo_output import DemoOutput

SHOWN_ROWS = 3
QUESTIONS = {
    "q1": "the large daytime transactions",
    "q2_best_selling": "what sold most in each month",
    "q2_most_profit": "what earned most in each month",
    "q3": "daytime payments by half-year and store",
    "q4": "the birthdays of each store's three best customers",
}


def compare(state: DemoState, expected: Mapping[str, Answers]) -> dict[str, Answers]:
    """Compare every result of every client with plain Spark; returns the released results."""
    released_by_client = {}
    for client in state.clients:
        results = state.server.results(client.name)
        ours = released_answers(state.session, state.deployment.root, results)
        wrong = differing(ours, expected[client.name])
        if wrong:
            names = ", ".join(wrong)
            raise SystemExit(f"client {client.name}: {names} differ from plain Spark")
        rows = sum(map(len, ours.values()))
        state.output.line(f"client {client.name}: {rows:,} result rows, equal to plain Spark's")
        released_by_client[client.name] = ours
    return released_by_client


def show_rows(
    client: str, answers: Answers, columns: Mapping[str, tuple[str, ...]], output: DemoOutput
) -> None:
    """Print the first rows of every result."""
    for sink, rows in answers.items():
        first = sorted(rows, key=str)[:SHOWN_ROWS]
        title = f"{sink}: {QUESTIONS[sink]} (client {client}, {len(first)} of {len(rows)} rows)"
        output.table(title, columns[sink], first)


def show_completeness(state: DemoState) -> None:
    """Print for every client its input, its releases, and its output."""
    columns = [dict(_column(state, client.name)) for client in state.clients]
    names = [client.name for client in state.clients]
    rows = [(key, *(column[key] for column in columns)) for key in columns[0]]
    title = "completeness of each run: declared and processed data are equal"
    state.output.table(title, ["", *names], rows, right=names)


def _column(state: DemoState, client: str) -> Iterator[tuple[str, str]]:
    yield "chunks, rows in", ""
    yield from _sources(state, client)
    yield "aggregates", ""
    yield from _released(state, client)
    yield "rows out", ""
    yield from _results(state, client)
    yield "seconds", f"{_seconds(state, client):.1f}"


def _sources(state: DemoState, client: str) -> Iterator[tuple[str, str]]:
    rows = state.server.rows_in(client)
    for source in state.facts[client].sources:
        chunks = f"{source.delivered} of {source.declared}"
        yield f"  {source.name}", f"{chunks}, {rows.get(source.name, 0):,}"


def _released(state: DemoState, client: str) -> Iterator[tuple[str, str]]:
    passed = released(state.facts_with_channels[client], state.task_graph.monitored)
    yield "  shards released", f"{passed.tasks} of {passed.of_tasks}"
    yield "  messages processed", f"{passed.processed} of {passed.declared}"


def _results(state: DemoState, client: str) -> Iterator[tuple[str, str]]:
    for sink, batches in state.server.results(client).items():
        yield f"  {sink}", f"{sum(batch.rows for batch in batches):,}"


def _seconds(state: DemoState, client: str) -> float:
    """From the start of the run to its results, by the clock of the database."""
    runs = state.deployment.database.transact(lambda c: overview(c, pipeline.name))
    (run,) = (summary for summary in runs if summary.run.name == client)
    assert run.closed_at is not None, "only complete runs are shown"
    return (run.closed_at - run.begun_at).total_seconds()
