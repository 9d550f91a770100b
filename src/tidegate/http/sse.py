"""Server-sent events of a run: its progress when that changes, its checkpoints, and its end.

    progress    {"why", "stages"}                       when it has changed
    checkpoint  {"number", "id", "seconds", "bytes"}    one per retained, published checkpoint
    query-end   {"sink", "rows"}                        one per sink, when its result is published
    complete, failed, cancelled                         the last event

Events are derived from the state of the run, not read from a log. So a client that reconnects with
the id of the last event it received continues after it, on any server of the deployment.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from tidegate.http.closing_response import ClosingResponse
from tidegate.store import RunState

if TYPE_CHECKING:
    from contextlib import ExitStack

    from starlette.responses import Response

    from tidegate.http.client_api import RunView

LOOK = 1.0
"""Seconds between two reads of a run's state."""
HEARTBEAT = 15.0
"""Seconds without an event after which a comment is sent to keep the connection open."""

FINAL = {
    RunState.ENDED: "complete",
    RunState.FAILED: "failed",
    RunState.CANCELLED: "cancelled",
}
_ID = re.compile(r"(\d{1,18})\.(\d{1,9})(?:\.([1-9]\d{0,17}))?")


@dataclass(frozen=True, slots=True)
class EventId:
    """Identifies the state of a stream: run, final events sent so far, last checkpoint sent."""

    run: int
    position: int = 0
    checkpoint: int = 0

    def __str__(self) -> str:
        return f"{self.run}.{self.position}" + (f".{self.checkpoint}" if self.checkpoint else "")

    @classmethod
    def read(cls, text: str | None) -> EventId | None:
        """Parse `Last-Event-ID`; None for a text that is not an event id.

        >>> EventId.read("17.2"), EventId.read("17.0.5"), EventId.read("yesterday")
        (EventId(run=17, position=2, checkpoint=0), EventId(run=17, position=0, checkpoint=5), None)
        """
        found = _ID.fullmatch(text or "")
        return cls(*(int(part or 0) for part in found.groups())) if found else None


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One event of a run."""

    id: EventId
    kind: str
    data: dict[str, object]

    @property
    def is_last(self) -> bool:
        """Whether it is the last event of the run."""
        return self.kind in FINAL.values()

    def encoded(self) -> bytes:
        """The event in the wire format."""
        data = msgspec.json.encode(self.data).decode()
        return f"id: {self.id}\nevent: {self.kind}\ndata: {data}\n\n".encode()


def events(before: RunView | None, now: RunView, last: EventId) -> Iterator[RunEvent]:
    """The events after `last`, given the previous view of the run, if any, and the current one."""
    at = last
    for taken in now.checkpoints:
        if taken.number > last.checkpoint:
            at = replace(at, checkpoint=taken.number)
            size = {"seconds": taken.seconds, "bytes": taken.bytes}
            yield RunEvent(at, "checkpoint", {"number": taken.number, "id": str(taken.id), **size})
    if now.run.state is not RunState.OPEN:
        yield from _last_events(now, at)
    elif before is None or before.stages != now.stages:
        data = {"why": now.why, "stages": msgspec.to_builtins(now.stages)}
        yield RunEvent(at, "progress", data)


def _last_events(now: RunView, at: EventId) -> Iterator[RunEvent]:
    """A client that reconnects after the last event gets it again, instead of an empty stream."""
    final = [*_end(now)]
    for position, (kind, data) in enumerate(final, 1):
        if position > min(at.position, len(final) - 1):
            yield RunEvent(replace(at, position=position), kind, data)


def _end(now: RunView) -> Iterator[tuple[str, dict[str, object]]]:
    for sink, rows in sorted(now.results.items()):
        yield "query-end", {"sink": sink, "rows": rows}
    run: dict[str, object] = {"run": now.run.name, "state": now.run.state.value}
    cause: dict[str, object] = {"cause": now.run.cause} if now.run.cause else {}
    yield FINAL[now.run.state], {**run, **cause}


async def stream(
    now: RunView,
    read: Callable[[], Awaitable[RunView | None]],
    last: EventId,
    beat: float = HEARTBEAT,
    every: float = LOOK,
) -> AsyncIterator[bytes]:
    """Events from the current view until the last event, or until `read` returns None."""
    view: RunView | None = now
    before: RunView | None = None
    sent_at = monotonic()
    while view is not None:
        for event in events(before, view, last):
            last, sent_at = event.id, monotonic()
            yield event.encoded()
            if event.is_last:
                return
        if monotonic() - sent_at >= beat:
            sent_at = monotonic()
            yield b": heartbeat\n\n"
        await asyncio.sleep(every)
        before, view = view, await read()


def response(
    now: RunView,
    read: Callable[[], Awaitable[RunView | None]],
    last: EventId,
    resources: ExitStack,
) -> Response:
    """The stream as a response that proxies do not buffer; releases the resources at its end."""
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return ClosingResponse(stream(now, read, last), resources, "text/event-stream", headers)
