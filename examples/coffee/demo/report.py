"""The report at the end of the demo: completeness, and a few rows of every result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tidegate_examples.coffee import pipeline
from tidegate_examples.coffee.demo.answers import Answers, differing
from tidegate_examples.coffee.demo.progress import released

if TYPE_CHECKING:
    import tidegate as tg
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


def compare(
    client: str, ours: Answers, expected: Mapping[str, Answers], output: DemoOutput
) -> None:
    """Compare every result of a client with plain Spark's."""
    wrong = differing(ours, expected[client])
    if wrong:
        raise SystemExit(f"client {client}: {', '.join(wrong)} differ from plain Spark")
    rows = sum(map(len, ours.values()))
    output.line(f"client {client}: {rows:,} result rows, equal to plain Spark's")


def show_rows(client: str, answers: Answers, results: tg.Results, output: DemoOutput) -> None:
    """Print the first rows of every result."""
    for sink, rows in answers.items():
        first = sorted(rows, key=str)[:SHOWN_ROWS]
        title = f"{sink}: {QUESTIONS[sink]} (client {client}, {len(first)} of {len(rows)} rows)"
        output.table(title, results[sink].schema.names, first)


def show_completeness(state: DemoState, results: Mapping[str, tg.Results]) -> None:
    """Print for every client its input, its releases, and its output."""
    columns = [dict(_column(state, client, result)) for client, result in results.items()]
    rows = [(key, *(column[key] for column in columns)) for key in columns[0]]
    title = "completeness of each run: declared and processed data are equal"
    state.output.table(title, ["", *results], rows, right=list(results))


def _column(state: DemoState, client: str, results: tg.Results) -> Iterator[tuple[str, str]]:
    yield "chunks in", ""
    for source in state.facts[client].sources:
        yield f"  {source.name}", f"{source.delivered} of {source.declared}"
    yield "aggregates", ""
    passed = released(state.facts_with_channels[client])
    yield "  shards released", f"{passed.tasks} of {passed.of_tasks}"
    yield "  messages processed", f"{passed.processed} of {passed.declared}"
    yield "rows out", ""
    for sink, result in results.items():
        yield f"  {sink}", f"{result.rows:,}"
    yield "seconds", f"{_seconds(state, client):.1f}"


def _seconds(state: DemoState, client: str) -> float:
    """From the start of the run to its results, by the clock of the database."""
    runs = state.deployment.runs(pipeline.name)
    (run,) = (summary for summary in runs if summary.run.name == client)
    assert run.closed_at is not None, "only complete runs are shown"
    return (run.closed_at - run.begun_at).total_seconds()
