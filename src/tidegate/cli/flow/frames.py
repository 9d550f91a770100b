"""One picture of a run of a flow, as lines of text: steps, items, gates, errors, workers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from textwrap import wrap
from typing import TYPE_CHECKING

from tidegate.cli.error_output import printable
from tidegate.cli.flow.render import (
    bound,
    lasting,
    not_taken,
    sentence,
    short,
    signal_awaited,
    workers,
)
from tidegate.errors import counted
from tidegate.flows.model.states import StepState

if TYPE_CHECKING:
    from tidegate.flows.inspect import RateMeter, RunInspection
    from tidegate.flows.model.gates import Standing
    from tidegate.store.flows.events import FlowWait
    from tidegate.store.flows.runs import StepProgress

BAR = 20
MOST_WORKERS = 6
UNIT = re.compile(r"(\d) (?=(?:s|min|h)\b)")


def frame(sight: RunInspection, pace: RateMeter, width: int) -> list[str]:
    """The lines of a picture, none of them wider than that."""
    lines = (printable(line) for line in _lines(sight, pace))
    return [part for line in lines for part in _fitted(line, width)]


def items_told(step: StepProgress, per_second: float | None, *, with_bar: bool = False) -> str:
    """The counters of a step with items; where their end is known, with a bar on request."""
    done = step.spawned - step.in_flight
    is_known = step.generating == "complete"
    bar = f"{_bar(done, step.spawned)} " if with_bar and is_known else ""
    of = counted(step.spawned, "item") if is_known else f"{step.spawned:,}+ items"
    told = [f"{bar}{done:,} of {of}"]
    told += [f"{step.in_flight:,} in flight"] if step.in_flight else []
    told += [f"{step.failed:,} failed"] if step.failed else []
    told += [_rate(per_second)] if per_second else []
    return ", ".join(told)


def standing_told(standing: Standing, per_second: float | None) -> str:
    """How far a key is, how fast it moves, and for how long it has not."""
    told = standing.distance
    if per_second and standing.behind:
        told += f", {_rate(per_second)}, {lasting(standing.behind / per_second)} to go"
    if standing.age is not None:
        told += f", written by {standing.writer or 'nobody'} {lasting(standing.age)} ago"
    return told


def _lines(sight: RunInspection, pace: RateMeter) -> Iterator[str]:
    yield f"{sentence(sight.run)}, {lasting(_age(sight))}"
    names = max((len(it.name) for it in sight.steps), default=0)
    for step in sight.steps:
        yield f"  {step.name:<{names}}  {_doing(sight, step, pace)}".rstrip()
        for wait in sight.wait_of(step.name):
            if wait.standing is not None:
                yield f"    {standing_told(wait.standing, _speed(wait.standing, pace))}"
        if step.name in sight.not_taken:
            yield f"    {not_taken(sight, step.name)}"
    yield from _errors(sight)
    told = list(workers(sight.holdings))
    yield from (f"  at work  {line}" for line in told[:MOST_WORKERS])
    if len(told) > MOST_WORKERS:
        yield f"  at work  and {counted(len(told) - MOST_WORKERS, 'worker')} more"


def _doing(sight: RunInspection, step: StepProgress, pace: RateMeter) -> str:
    own = sight.wait_of(step.name)
    if own:
        return f"waits, for {lasting(own[0].waited)}{bound(own[0])}"
    if step.name in sight.signals:
        return signal_awaited(sight, step.name)
    if step.generating is None:
        return step.state.value
    is_running = step.state is StepState.RUNNING
    per_second = pace.rate(lambda it: it.done(step.name)) if is_running else None
    told = items_told(step, per_second, with_bar=True)
    return f"{step.state.value:<9}  {told}{_suspended(sight.waits, step.name)}"


def _suspended(waits: list[FlowWait], step: str) -> str:
    items = {it.position for it in waits if it.step == step and it.position >= 0}
    return f", {len(items):,} waiting" if items else ""


def _errors(sight: RunInspection) -> Iterator[str]:
    for it in sight.steps:
        if it.last_error:
            yield f"  last error of {it.name}: {short(it.last_error)}"


def _speed(standing: Standing, pace: RateMeter) -> float | None:
    key = standing.condition.key
    return pace.rate(lambda sight: number_of(sight, key))


def number_of(sight: RunInspection, key: str) -> float | None:
    """The value of a key of the state, where that is a number."""
    found = sight.state.get(key)
    return None if found is None else found.number


def _age(sight: RunInspection) -> float:
    end = sight.run.closed_at or datetime.now(UTC)
    return (end - sight.run.begun_at).total_seconds()


def _bar(done: int, of: int) -> str:
    filled = BAR * done // of if of else BAR
    return "█" * filled + "░" * (BAR - filled)


def _rate(per_second: float) -> str:
    return f"{per_second:,.0f}/s" if per_second >= 10 else f"{per_second:.1f}/s"  # noqa: PLR2004


def _fitted(line: str, width: int) -> list[str]:
    """A line in the width that there is: on two lines if need be, and what is left is cut off."""
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    whole = UNIT.sub("\\1\u00a0", line)  # a number stays with its unit
    parts = wrap(
        whole, max(width, 20), subsequent_indent=indent, max_lines=2, placeholder="…",
        break_on_hyphens=False,
    )  # fmt: skip
    return [it.replace("\u00a0", " ") for it in parts]
