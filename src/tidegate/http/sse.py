"""Server-sent events of a run: how far it is when that changes, and its end.

    progress    {"why", "stages"}              when it has changed
    cut         {"number", "id", "seconds", "bytes"}    one per cut that is remembered
    query-end   {"sink", "rows"}               one per sink, when its result is published
    complete, failed, cancelled                the last one

Events follow from what is known of the run, not from a log. So whoever comes back with the id of
the last event that it has seen goes on after it, whichever server it meets.
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
"""Seconds between two looks at a run."""
HEARTBEAT = 15.0
"""Seconds of silence after which a comment says that the line is alive."""

FINAL = {
    RunState.ENDED: "complete",
    RunState.FAILED: "failed",
    RunState.CANCELLED: "cancelled",
}
_ID = re.compile(r"(\d{1,18})\.(\d{1,9})(?:\.([1-9]\d{0,17}))?")


@dataclass(frozen=True, slots=True)
class EventId:
    """A run, how many of the events of its end came up to here, and the last cut that was told."""

    run: int
    place: int = 0
    checkpoint: int = 0

    def __str__(self) -> str:
        return f"{self.run}.{self.place}" + (f".{self.checkpoint}" if self.checkpoint else "")

    @classmethod
    def read(cls, text: str | None) -> EventId | None:
        """From `Last-Event-ID`; None for what we never sent.

        >>> EventId.read("17.2"), EventId.read("17.0.5"), EventId.read("yesterday")
        (EventId(run=17, place=2, checkpoint=0), EventId(run=17, place=0, checkpoint=5), None)
        """
        found = _ID.fullmatch(text or "")
        return cls(*(int(part or 0) for part in found.groups())) if found else None


@dataclass(frozen=True, slots=True)
class RunEvent:
    """Something to tell those who follow a run."""

    id: EventId
    kind: str
    data: dict[str, object]

    @property
    def is_last(self) -> bool:
        """Whether nothing comes after it."""
        return self.kind in FINAL.values()

    def encoded(self) -> bytes:
        """As it is sent."""
        data = msgspec.json.encode(self.data).decode()
        return f"id: {self.id}\nevent: {self.kind}\ndata: {data}\n\n".encode()


def events(before: RunView | None, now: RunView, heard: EventId) -> Iterator[RunEvent]:
    """What is new, for who has heard everything up to one event of this run."""
    at = heard
    for it in now.checkpoints:
        if it.number > heard.checkpoint:
            at = replace(at, checkpoint=it.number)
            data = {"number": it.number, "id": str(it.id), "seconds": it.seconds, "bytes": it.bytes}
            yield RunEvent(at, "checkpoint", data)
    if now.run.state is not RunState.OPEN:
        yield from _last_events(now, at)
    elif before is None or before.stages != now.stages:
        told = {"why": now.why, "stages": msgspec.to_builtins(now.stages)}
        yield RunEvent(at, "progress", told)


def _last_events(now: RunView, at: EventId) -> Iterator[RunEvent]:
    """Who has heard the very last one and asks again gets it again, instead of silence."""
    last = [*_end(now)]
    for place, (kind, data) in enumerate(last, 1):
        if place > min(at.place, len(last) - 1):
            yield RunEvent(replace(at, place=place), kind, data)


def _end(now: RunView) -> Iterator[tuple[str, dict[str, object]]]:
    for sink, rows in sorted(now.results.items()):
        yield "query-end", {"sink": sink, "rows": rows}
    run: dict[str, object] = {"run": now.run.name, "state": now.run.state.value}
    cause: dict[str, object] = {"cause": now.run.cause} if now.run.cause else {}
    yield FINAL[now.run.state], {**run, **cause}


async def stream(
    now: RunView,
    look: Callable[[], Awaitable[RunView | None]],
    heard: EventId,
    beat: float = HEARTBEAT,
    every: float = LOOK,
) -> AsyncIterator[bytes]:
    """Events from what is seen now until the last one, or until `look` has nothing more to see."""
    seen: RunView | None = now
    before: RunView | None = None
    spoke_at = monotonic()
    while seen is not None:
        for event in events(before, seen, heard):
            heard, spoke_at = event.id, monotonic()
            yield event.encoded()
            if event.is_last:
                return
        if monotonic() - spoke_at >= beat:
            spoke_at = monotonic()
            yield b": still here\n\n"
        await asyncio.sleep(every)
        before, seen = seen, await look()


def response(
    now: RunView, look: Callable[[], Awaitable[RunView | None]], heard: EventId, held: ExitStack
) -> Response:
    """The stream as an answer that nobody on the way keeps; what is held is let go at its end."""
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return ClosingResponse(stream(now, look, heard), held, "text/event-stream", headers)
