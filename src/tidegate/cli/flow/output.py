"""The results of a flow run, as the stored JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidegate.cli.flow.render import sentence
from tidegate.errors import StepNotCompleted, UnknownRunStep, listed
from tidegate.flows.model.states import StepState

if TYPE_CHECKING:
    from tidegate.store import Database
    from tidegate.store.flows.events import StepOutcome
    from tidegate.store.flows.runs import FlowRunInfo

MAX_INLINE = 200
"""Characters of a result that are printed beside a run."""
NOTHING = "null"
ENDED_WELL = (StepState.COMPLETED, StepState.SKIPPED)


def results(database: Database, run: int, step: str | None = None) -> Iterator[str]:
    """Lines of JSON: the result of a step, or of each of its items.

    Without a step, of all steps that no other depends on; several are printed with their names.
    """
    chosen = [outcome_of(database, run, step)] if step else _last(database, run)
    for it in chosen:
        if it.state not in ENDED_WELL:
            raise StepNotCompleted(run, it.step, it.state.value)
    for it in chosen:
        for text in map(_printable, _results_of(database, run, it)):
            yield text if len(chosen) == 1 else _named(it.step, text)


def outcome_of(database: Database, run: int, step: str) -> StepOutcome:
    """The outcome of a step; raises `UnknownRunStep` if the run has no such step."""
    found = _outcomes(database, run)
    for it in found:
        if it.step == step:
            return it
    raise UnknownRunStep(run, step, listed([it.step for it in found]))


def ended(database: Database, run: FlowRunInfo) -> str:
    """A completed run in one line, with its result or the command that prints it."""
    last = _last(database, run.id)
    if len(last) != 1 or last[0].has_items:
        return f"{sentence(run)}; `tidegate flow result {run.id}` prints its results"
    (text,) = map(_printable, _results_of(database, run.id, last[0]))
    if len(text) > MAX_INLINE:
        return (
            f"{sentence(run)}; `tidegate flow result {run.id}` prints the result of {last[0].step}"
        )
    return sentence(run) if text == NOTHING else f"{sentence(run)}; {last[0].step} returned {text}"


def _results_of(database: Database, run: int, of: StepOutcome) -> Iterator[str]:
    from tidegate.store.flows.runs import all_item_results, step_result

    if of.has_items:
        yield from all_item_results(database, run, of.step)
        return
    found = database.transact(lambda c: step_result(c, run, of.step))
    yield NOTHING if found is None or found.json is None else found.json


def _last(database: Database, run: int) -> list[StepOutcome]:
    return [it for it in _outcomes(database, run) if it.is_last]


def _outcomes(database: Database, run: int) -> list[StepOutcome]:
    from tidegate.store.flows.events import flow_outcomes
    from tidegate.store.flows.runs import flow_run

    database.transact(lambda c: flow_run(c, run))  # raises if there is none
    return database.transact(lambda c: flow_outcomes(c, run))


def _named(step: str, text: str) -> str:
    return f'{{"step": {json.dumps(step)}, "result": {text}}}'


def _printable(text: str) -> str:
    """The same JSON with control characters escaped."""
    if text.isprintable():
        return text
    return "".join(it if it.isprintable() else json.dumps(it)[1:-1] for it in text)
