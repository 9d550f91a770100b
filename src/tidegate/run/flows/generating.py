"""Running a generator: its items become tasks in batches, and it waits when handlers fall behind.

The generator runs on its caller's thread and puts items into a short buffer. A second thread makes
them tasks: a batch at a time, or fewer when the oldest has waited long enough, so that a slow
generator does not sit on items. While too many are in flight it takes none, the buffer fills, and
the generator waits.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from threading import Condition, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec

from tidegate.errors import InvalidFlowValue
from tidegate.faults import crash_point
from tidegate.flows.flow import GeneratorStep
from tidegate.flows.values import check_storable
from tidegate.store import flow_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidegate.flows.steps import Generating
    from tidegate.run.flows.context import TaskContext
    from tidegate.store import Connection, Database
    from tidegate.store.flow_tasks import GeneratorPlace

BUFFERS = 2
"""Batches that a generator may be ahead."""
LARGEST = 8_000_000
"""Characters above which a batch takes no more items: PostgreSQL has a limit for one document."""
LOOK_EVERY = 0.1
"""Seconds between two looks at whether handlers have caught up."""


@dataclass(frozen=True, slots=True)
class _Item:
    name: int | str
    json: str


@dataclass(frozen=True, slots=True)
class _Cursor:
    json: str
    position: int
    """Of the first item behind it."""


class _Closed(Exception):
    """The spawner has ended; why, it tells itself."""


class Spawner:
    """Makes items tasks, on a thread of its own."""

    def __init__(
        self, database: Database, context: TaskContext, how: Generating, in_flight: int
    ) -> None:
        self._database = database
        self._context = context
        self._how = how
        self._room = how.max_in_flight - in_flight
        """Items that may be spawned before some of those in flight are terminal."""
        self._waiting: deque[_Item | _Cursor] = deque()
        self._oldest = 0.0
        self._changed = Condition()
        self._is_ended = False
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, name="tidegate-spawner", daemon=True)
        self._thread.start()

    def put(self, entry: _Item | _Cursor) -> None:
        """Wait for room; raises what has ended the spawner."""
        with self._changed:
            while len(self._waiting) >= BUFFERS * self._how.batch and self._error is None:
                self._changed.wait(LOOK_EVERY)
                self._context.check()
            if self._error is not None:
                raise _Closed
            is_first = not self._waiting
            if is_first:
                self._oldest = monotonic()
            self._waiting.append(entry)
            # In between the spawner would only look at the clock.
            if is_first or len(self._waiting) >= self._how.batch:
                self._changed.notify_all()

    def close(self) -> None:
        """Make what is left tasks, and raise what went wrong."""
        with self._changed:
            self._is_ended = True
            self._changed.notify_all()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._wait_for_handlers()
            while batch := self._next_batch():
                self._room = self._how.max_in_flight - self._spawn(batch)
                self._wait_for_handlers()
        except BaseException as error:  # noqa: BLE001  it is raised where the generator is
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _next_batch(self) -> list[_Item | _Cursor]:
        """As soon as it is full, or old enough; nothing at the end."""
        with self._changed:
            while not self._is_ended and len(self._waiting) < self._how.batch:
                left = self._oldest + self._how.flush_every - monotonic()
                if self._waiting and left <= 0:
                    break
                self._changed.wait(left if self._waiting else None)
            batch = self._take()
            self._oldest = monotonic()
            self._changed.notify_all()
            return batch

    def _take(self) -> list[_Item | _Cursor]:
        batch: list[_Item | _Cursor] = []
        left = LARGEST
        most = min(self._how.batch, max(1, self._room))
        while self._waiting and len(batch) < most and left > 0:
            batch.append(self._waiting.popleft())
            left -= len(batch[-1].json)
        return batch

    def _spawn(self, batch: list[_Item | _Cursor]) -> int:
        items = [(it.name, it.json) for it in batch if isinstance(it, _Item)]
        cursors = [(it.json, it.position) for it in batch if isinstance(it, _Cursor)]

        def spawn(connection: Connection) -> int:
            cursor = cursors[-1] if cursors else None
            _, in_flight = flow_tasks.spawn(connection, self._context.claim, items, cursor)
            crash_point("flow.spawn.before_commit")
            return in_flight

        in_flight = self._database.transact(spawn)
        crash_point("flow.spawn.after_commit")
        return in_flight

    def _wait_for_handlers(self) -> None:
        step = self._context.claim.step_id
        while self._room <= 0 and not self._context.is_cancelled:
            self._context.wait_cancelled(LOOK_EVERY)
            place = self._database.transact(lambda c: flow_tasks.generator_place(c, step))
            self._room = self._how.max_in_flight - place.in_flight


def generate(database: Database, context: TaskContext, arguments: list[Any]) -> None:
    """Run a generator from where it was, until its end.

    Raises `FlowCancelled` when somebody else is to go on, with everything yielded so far spawned.
    """
    part = context.part
    step = part.step
    assert isinstance(step, GeneratorStep)
    claim = context.claim
    place = database.transact(lambda c: flow_tasks.generator_place(c, claim.step_id))
    context.restore_cursor(place.cursor)
    spawner = Spawner(database, context, step.generating, place.in_flight)
    try:
        _feed(spawner, context, step, place, arguments)
    except _Closed:
        pass  # closing tells why
    finally:
        spawner.close()
    context.check()
    database.transact(lambda c: _finish(c, context))


def _finish(connection: Connection, context: TaskContext) -> None:
    flow_tasks.finish_generator(connection, context.claim)
    crash_point("flow.finish.before_commit")


def _feed(
    spawner: Spawner,
    context: TaskContext,
    step: GeneratorStep[..., Any, Any],
    place: GeneratorPlace,
    arguments: list[Any],
) -> None:
    position = place.cursor_position
    codec, key = context.part.item, step.generating.key
    assert codec is not None

    def save(value: object) -> None:
        spawner.put(_Cursor(_cursor_json(step.name, value), position))

    context.on_cursor = save
    items: Iterator[Any] = iter(step.function(context, *arguments))
    try:
        for item in items:
            if key is not None:
                spawner.put(_Item(_known_by(step.name, key, item), codec.encode(item)))
            elif position >= place.spawned:
                spawner.put(_Item(position, codec.encode(item)))
            position += 1
            if context.is_cancelled:
                return
    finally:
        close = getattr(items, "close", None)
        if close is not None:
            close()


def _known_by(step: str, key: Callable[[Any], object], item: object) -> str:
    """What identifies an item; without it all such items would be taken for the same one."""
    found = key(item)
    if found is None:
        raise InvalidFlowValue(f"an item of {step!r}", repr(item)[:200], "it has no key")
    return str(found)


def _cursor_json(step: str, value: object) -> str:
    of = f"the cursor of {step!r}"
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, msgspec.MsgspecError) as error:
        raise InvalidFlowValue(of, repr(value), str(error)) from error
    check_storable(of, value, text)
    return text
