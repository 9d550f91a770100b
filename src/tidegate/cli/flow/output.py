"""What a run of a flow gave: the results of its steps, as the JSON that is stored."""

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

LONGEST = 200
"""Characters of a result that are told beside a run."""
NOTHING = "null"
ENDED_WELL = (StepState.COMPLETED, StepState.SKIPPED)


def results(database: Database, run: int, step: str | None = None) -> Iterator[str]:
    """Lines of JSON: what a step gave, or each of its items.

    Without a step, those that no other depends on; where there are several, each with its name.
    """
    chosen = [outcome_of(database, run, step)] if step else _last(database, run)
    for it in chosen:
        if it.state not in ENDED_WELL:
            raise StepNotCompleted(run, it.step, it.state.value)
    for it in chosen:
        for text in map(_printable, _given(database, run, it)):
            yield text if len(chosen) == 1 else _named(it.step, text)


def outcome_of(database: Database, run: int, step: str) -> StepOutcome:
    """What became of a step; raises `UnknownRunStep` where the run has none of this name."""
    found = _outcomes(database, run)
    for it in found:
        if it.step == step:
            return it
    raise UnknownRunStep(run, step, listed([it.step for it in found]))


def ended(database: Database, run: FlowRunInfo) -> str:
    """What has become of a run that was completed, and what it gave, or how that is printed."""
    last = _last(database, run.id)
    if len(last) != 1 or last[0].has_items:
        return f"{sentence(run)}; `tidegate flow result {run.id}` prints what it gave"
    (text,) = map(_printable, _given(database, run.id, last[0]))
    if len(text) > LONGEST:
        told = f"`tidegate flow result {run.id}` prints what {last[0].step} gave"
        return f"{sentence(run)}; {told}"
    return sentence(run) if text == NOTHING else f"{sentence(run)}; {last[0].step} gave {text}"


def _given(database: Database, run: int, of: StepOutcome) -> Iterator[str]:
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

    database.transact(lambda c: flow_run(c, run))  # says so if there is none
    return database.transact(lambda c: flow_outcomes(c, run))


def _named(step: str, text: str) -> str:
    return f'{{"step": {json.dumps(step)}, "result": {text}}}'


def _printable(text: str) -> str:
    """The same JSON, without anything that a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(it if it.isprintable() else json.dumps(it)[1:-1] for it in text)
