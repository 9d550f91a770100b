"""Renders flow runs as text: one line, a table, or everything about one run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tidegate.cli.output.error_output import printable
from tidegate.cli.output.tables import aligned, clock
from tidegate.errors import counted
from tidegate.flows.model.gates import readable

if TYPE_CHECKING:
    from tidegate.flows.inspect import RunInspection
    from tidegate.flows.model.keys import StateValue
    from tidegate.store.flows.events import FlowEvent, FlowWait, WorkerTasks
    from tidegate.store.flows.runs import FlowRunInfo, StepProgress

LAST_ERROR = 100
"""Characters of an error in a table."""
MINUTE, HOUR = 60, 3600
NO_WORKER = "no worker is alive; start one with `tidegate flow worker FLOW`"


def sentence(run: FlowRunInfo) -> str:
    """The state of a run in one line."""
    because = f": {run.cause}" if run.cause else ""
    return printable(f"run {run.id} of flow {run.flow!r} is {run.state.value}{because}")


def table(runs: Sequence[FlowRunInfo]) -> str:
    """Runs as a table."""
    if not runs:
        return "no runs"
    rows: list[tuple[str, ...]] = [("run", "flow", "key", "state", "started", "cause")]
    rows += [
        (str(it.id), it.flow, it.key, it.state.value, clock(it.begun_at), short(it.cause))
        for it in runs
    ]
    return printable("\n".join(aligned(rows)))


def whole(inspection: RunInspection) -> str:
    """Everything about one run."""
    return printable("\n".join(_whole(inspection)))


def _whole(inspection: RunInspection) -> Iterator[str]:
    yield sentence(inspection.run)
    rows: list[tuple[str, ...]] = [
        ("step", "kind", "state", "items", "succeeded", "failed", "in flight", "last error")
    ]
    rows += [_step_row(it) for it in inspection.steps]
    yield from (f"  {line}" for line in aligned(rows))
    yield from _state(inspection.state)
    yield from waits(inspection.waits)
    yield from (f"  {step} {signal_awaited(inspection, step)}" for step in inspection.signals)
    yield from (f"  {step} {unclaimed(inspection, step)}" for step in inspection.unclaimed)
    if inspection.in_flight:
        yield "  in flight"
        yield from (f"    {line}" for line in workers(inspection.in_flight))


def _step_row(it: StepProgress) -> tuple[str, ...]:
    if it.generating is None:
        return it.name, it.kind, it.state.value, "-", "-", "-", "-", short(it.last_error)
    more = "" if it.generating == "complete" else "+"
    return (
        it.name, it.kind, it.state.value, f"{it.spawned}{more}", str(it.succeeded),
        str(it.failed), str(it.in_flight), short(it.last_error),
    )  # fmt: skip


def _state(state: dict[str, StateValue]) -> Iterator[str]:
    if state:
        yield "  state"
        rows = [
            (key, short(it.json), it.writer or "-", "-" if it.age is None else lasting(it.age))
            for key, it in state.items()
        ]
        keys: list[tuple[str, ...]] = [("key", "value", "written by", "ago"), *rows]
        yield from (f"    {line}" for line in aligned(keys))


def waits(found: Sequence[FlowWait]) -> Iterator[str]:
    """What tasks wait for, since when and until when."""
    if found:
        yield "  waiting"
    last: tuple[str, int] | None = None
    for it in found:
        if (it.step, it.position) != last:
            last = (it.step, it.position)
            yield f"    {task_of(it)}, since {clock(it.waiting_since)}{bound(it)}"
        if it.standing is not None:
            yield f"      {it.standing}"
        if it.pipeline_run is not None:
            yield f"      run {it.pipeline_run} of a pipeline: `tidegate why {it.pipeline_run}`"


def signal_awaited(inspection: RunInspection, step: str) -> str:
    """That a step waits for its signal, and the command that delivers it."""
    return f"waits for its signal: `tidegate flow signal {inspection.run.id} {step} JSON`"


def unclaimed(inspection: RunInspection, step: str) -> str:
    """For how long a step has been ready, and why no worker claims it."""
    since = f"has been ready for {lasting(inspection.unclaimed[step])}"
    if inspection.workers == 0:
        return f"{since}: {NO_WORKER}"
    alive = "the only worker" if inspection.workers == 1 else f"the {inspection.workers:,} workers"
    return f"{since}: no worker claims it; {alive} may be busy, or serve other flows"


def task_of(it: FlowWait) -> str:
    """The waiting task."""
    return it.step if it.position < 0 else f"{it.step} item {it.position}"


def bound(it: FlowWait) -> str:
    """For how much longer a task may wait."""
    if it.wait_until is None:
        return ", without a timeout"
    left = (it.wait_until - datetime.now(UTC)).total_seconds()
    return f", {lasting(left)} more at most" if left > 0 else ", its timeout has passed"


def workers(in_flight: Sequence[WorkerTasks]) -> Iterator[str]:
    """The tasks in flight, one line per worker."""
    for worker in dict.fromkeys(it.worker for it in in_flight):
        tasks = [_tasks_of(it) for it in in_flight if it.worker == worker]
        yield f"{worker}: {', '.join(tasks)}"


def _tasks_of(it: WorkerTasks) -> str:
    return f"{it.number:,} of {it.step}" if it.is_items else it.step


def render_event(event: FlowEvent) -> str:
    """An event as one sentence."""
    detail, name = event.detail, event.name
    match event.kind:
        case "signal":
            return f"step {name!r} received its signal from {detail['by']}"
        case "state":
            value = short(readable(_text(detail["value"]))) if "value" in detail else "a long value"
            return f"state {name!r} is {value}, by {detail.get('by', 'unknown')}"
        case "policy":
            return f"step {name!r} tolerates {tolerated(detail.get('count'), detail.get('share'))}"
        case "wait" if detail["to"] == "begun":
            return f"step {name!r} waits for {', '.join(detail['keys']) or 'a condition'}"
        case "wait":
            return f"the wait of step {name!r} is {detail['to']}"
    ended_well = detail["to"] == "completed"  # although some items may have failed
    because = f": {detail['cause']}" if "cause" in detail and not ended_well else ""
    return f"{event.kind} {name!r} is {detail['to']}{_counts(detail.get('items'))}{because}"


def tolerated(count: int | None, share: float | None) -> str:
    """A failure policy as text.

    >>> tolerated(None, None), tolerated(1, None), tolerated(50, 0.25)
    ('no failed item', '1 failed item', '50 failed items and 25 % of all items')
    """
    parts = [] if count is None else [counted(count, "failed item")]
    parts += [] if share is None else [f"{share * 100:g} % of all items"]
    return " and ".join(parts) or "no failed item"


def lasting(seconds: float) -> str:
    """A duration as text.

    >>> lasting(0.26), lasting(12.3), lasting(75), lasting(7500)
    ('0.3 s', '12 s', '1 min 15 s', '2 h 5 min')
    """
    if seconds < 10:  # noqa: PLR2004
        return f"{max(seconds, 0):.1f} s"
    whole_seconds = round(seconds)
    if whole_seconds < MINUTE:
        return f"{whole_seconds} s"
    if whole_seconds < HOUR:
        return f"{whole_seconds // MINUTE} min {whole_seconds % MINUTE} s"
    return f"{whole_seconds // HOUR:,} h {whole_seconds % HOUR // MINUTE} min"


def short(text: str | None) -> str:
    """The first line of a text, shortened; after a colon also the last line.

    >>> short("PythonException: in a worker:\\n  Traceback …\\nKeyError: 'price'\\n")
    "PythonException: in a worker: KeyError: 'price'"
    """
    first, *rest = (text or "-").strip().split("\n")
    line = f"{first} {rest[-1].strip()}" if rest and first.endswith(":") else first
    return line if len(line) <= LAST_ERROR else f"{line[:LAST_ERROR]}…"


def on_one_line(text: str) -> str:
    """A text on one line, for a log.

    >>> on_one_line("in a worker:\\n  Traceback …\\nKeyError: 'price'\\n")
    "in a worker: Traceback … KeyError: 'price'"
    """
    return " ".join(text.split())


def _counts(items: Mapping[str, int] | None) -> str:
    return f", {items['succeeded']:,} of {items['spawned']:,} items succeeded" if items else ""


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
