"""A flow run as lines of text that fit a width: steps, items, gates, errors, workers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from textwrap import wrap
from typing import TYPE_CHECKING

from tidegate.cli.flow.render import (
    bound,
    lasting,
    sentence,
    short,
    signal_awaited,
    unclaimed,
    workers,
)
from tidegate.cli.output.error_output import printable
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


def frame(inspection: RunInspection, pace: RateMeter, width: int) -> list[str]:
    """The lines of a run, none wider than `width`."""
    lines = (printable(line) for line in _lines(inspection, pace))
    return [part for line in lines for part in _fitted(line, width)]


def render_items(step: StepProgress, per_second: float | None, *, with_bar: bool = False) -> str:
    """The counters of a step with items; with a progress bar if their number is known."""
    done = step.spawned - step.in_flight
    is_known = step.generating == "complete"
    bar = f"{_bar(done, step.spawned)} " if with_bar and is_known else ""
    of = counted(step.spawned, "item") if is_known else f"{step.spawned:,}+ items"
    parts = [f"{bar}{done:,} of {of}"]
    parts += [f"{step.in_flight:,} in flight"] if step.in_flight else []
    parts += [f"{step.failed:,} failed"] if step.failed else []
    parts += [_rate(per_second)] if per_second else []
    return ", ".join(parts)


def render_standing(standing: Standing, per_second: float | None) -> str:
    """How far a key is from its target, its rate, and the age of its last write."""
    text = standing.distance
    if per_second and standing.behind:
        text += f", {_rate(per_second)}, {lasting(standing.behind / per_second)} to go"
    if standing.age is not None:
        text += f", written by {standing.writer or 'unknown'} {lasting(standing.age)} ago"
    return text


def _lines(inspection: RunInspection, pace: RateMeter) -> Iterator[str]:
    yield f"{sentence(inspection.run)}, {lasting(_age(inspection))}"
    names = max((len(it.name) for it in inspection.steps), default=0)
    for step in inspection.steps:
        yield f"  {step.name:<{names}}  {_doing(inspection, step, pace)}".rstrip()
        for wait in inspection.wait_of(step.name):
            if wait.standing is not None:
                yield f"    {render_standing(wait.standing, _speed(wait.standing, pace))}"
        if step.name in inspection.unclaimed:
            yield f"    {unclaimed(inspection, step.name)}"
    yield from _errors(inspection)
    claims = list(workers(inspection.in_flight))
    yield from (f"  in flight  {line}" for line in claims[:MOST_WORKERS])
    if len(claims) > MOST_WORKERS:
        yield f"  in flight  and {counted(len(claims) - MOST_WORKERS, 'worker')} more"


def _doing(inspection: RunInspection, step: StepProgress, pace: RateMeter) -> str:
    own = inspection.wait_of(step.name)
    if own:
        return f"waits for {lasting(own[0].waited)}{bound(own[0])}"
    if step.name in inspection.signals:
        return signal_awaited(inspection, step.name)
    if step.generating is None:
        return step.state.value
    is_running = step.state is StepState.RUNNING
    per_second = pace.rate(lambda it: it.done(step.name)) if is_running else None
    items = render_items(step, per_second, with_bar=True)
    return f"{step.state.value:<9}  {items}{_suspended(inspection.waits, step.name)}"


def _suspended(waits: list[FlowWait], step: str) -> str:
    items = {it.position for it in waits if it.step == step and it.position >= 0}
    return f", {len(items):,} waiting" if items else ""


def _errors(inspection: RunInspection) -> Iterator[str]:
    for it in inspection.steps:
        if it.last_error:
            yield f"  last error of {it.name}: {short(it.last_error)}"


def _speed(standing: Standing, pace: RateMeter) -> float | None:
    key = standing.condition.key
    return pace.rate(lambda inspection: number_of(inspection, key))


def number_of(inspection: RunInspection, key: str) -> float | None:
    """The value of a state key, if it is a number."""
    found = inspection.state.get(key)
    return None if found is None else found.number


def _age(inspection: RunInspection) -> float:
    end = inspection.run.closed_at or datetime.now(UTC)
    return (end - inspection.run.begun_at).total_seconds()


def _bar(done: int, of: int) -> str:
    filled = BAR * done // of if of else BAR
    return "█" * filled + "░" * (BAR - filled)


def _rate(per_second: float) -> str:
    return f"{per_second:,.0f}/s" if per_second >= 10 else f"{per_second:.1f}/s"  # noqa: PLR2004


def _fitted(line: str, width: int) -> list[str]:
    """A line wrapped to two lines if necessary; the rest is cut off."""
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    whole = UNIT.sub("\\1\u00a0", line)  # a number stays with its unit
    parts = wrap(
        whole, max(width, 20), subsequent_indent=indent, max_lines=2, placeholder="…",
        break_on_hyphens=False,
    )  # fmt: skip
    return [it.replace("\u00a0", " ") for it in parts]
