"""What the demo shows in the end: that nothing is missing, and a few rows of every answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tidegate.store import overview
from tidegate_examples.coffee import pipeline
from tidegate_examples.coffee.demo.answers import Answers, differing, released_answers
from tidegate_examples.coffee.demo.progress import released

if TYPE_CHECKING:
    from tidegate_examples.coffee.demo.show import Show
    from tidegate_examples.demo_output import DemoOutput

SHOWN_ROWS = 3
QUESTIONS = {
    "q1": "the large daytime transactions",
    "q2_best_selling": "what sold most in each month",
    "q2_most_profit": "what earned most in each month",
    "q3": "daytime payments by half-year and store",
    "q4": "the birthdays of each store's three best customers",
}


def compare(show: Show, expected: Mapping[str, Answers]) -> dict[str, Answers]:
    """Every answer of every client against plain Spark's; all that were released."""
    every = {}
    for client in show.clients:
        results = show.server.results(client.name)
        ours = released_answers(show.session, show.place.root, results)
        wrong = differing(ours, expected[client.name])
        if wrong:
            said = ", ".join(wrong)
            raise SystemExit(f"client {client.name}: {said}: not what plain Spark gives")
        rows = sum(map(len, ours.values()))
        show.output.line(f"client {client.name}: {rows:,} result rows, the same as plain Spark's")
        every[client.name] = ours
    return every


def show_rows(
    client: str, answers: Answers, columns: Mapping[str, tuple[str, ...]], output: DemoOutput
) -> None:
    """The first rows of every answer."""
    for sink, rows in answers.items():
        first = sorted(rows, key=str)[:SHOWN_ROWS]
        title = f"{sink}: {QUESTIONS[sink]} (client {client}, {len(first)} of {len(rows)} rows)"
        output.table(title, columns[sink], first)


def show_completeness(show: Show) -> None:
    """For every client: what went in, what the monitor let through, what came out."""
    columns = [dict(_column(show, client.name)) for client in show.clients]
    names = [client.name for client in show.clients]
    rows = [(key, *(column[key] for column in columns)) for key in columns[0]]
    title = "why each run is complete: what was announced is what was processed"
    show.output.table(title, ["", *names], rows, right=names)


def _column(show: Show, client: str) -> Iterator[tuple[str, str]]:
    yield "chunks, rows in", ""
    yield from _sources(show, client)
    yield "aggregates", ""
    yield from _released(show, client)
    yield "rows out", ""
    yield from _results(show, client)
    yield "seconds", f"{_seconds(show, client):.1f}"


def _sources(show: Show, client: str) -> Iterator[tuple[str, str]]:
    rows = show.server.rows_in(client)
    for source in show.facts[client].sources:
        chunks = f"{source.delivered} of {source.declared}"
        yield f"  {source.name}", f"{chunks}, {rows.get(source.name, 0):,}"


def _released(show: Show, client: str) -> Iterator[tuple[str, str]]:
    passed = released(show.traces[client], show.task_graph.monitored)
    yield "  shards released", f"{passed.tasks} of {passed.of_tasks}"
    yield "  messages processed", f"{passed.processed} of {passed.declared}"


def _results(show: Show, client: str) -> Iterator[tuple[str, str]]:
    for sink, batches in show.server.results(client).items():
        yield f"  {sink}", f"{sum(batch.rows for batch in batches):,}"


def _seconds(show: Show, client: str) -> float:
    """From its beginning to its results, by the clock of the database."""
    runs = show.place.database.transact(lambda c: overview(c, pipeline.name))
    (run,) = (it for it in runs if it.run.name == client)
    assert run.closed_at is not None, "only complete runs are shown"
    return (run.closed_at - run.begun_at).total_seconds()
