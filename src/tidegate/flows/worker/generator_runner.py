"""Runs a generator: spawns its items as tasks in batches, with backpressure from the handlers.

The generator runs on the caller's thread and puts items into a short buffer. A second thread spawns
them: a batch at a time, or fewer when the oldest has waited for `flush_every`, so that items of a
slow generator do not wait. While `max_in_flight` items are in flight it spawns none, the buffer
fills, and the generator waits, which does not count towards its timeout.

When a generator ends early, as many buffered items are spawned as the limit allows. The others are
dropped, and yielded again by the next attempt.
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
from tidegate.flows.model.codecs import check_storable
from tidegate.flows.model.flow import GeneratorStep
from tidegate.flows.worker.store_errors import store_access
from tidegate.store.flows import tasks as flow_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidegate.flows.model.steps import SpawnOptions
    from tidegate.flows.worker.task_context import TaskContext
    from tidegate.store import Connection, Database
    from tidegate.store.flows.tasks import Claim, GeneratorPosition

BUFFERS = 2
"""Batches that fit into the buffer."""
MAX_BATCH_CHARS = 8_000_000
"""Characters of a batch; PostgreSQL limits the size of one document."""
POLL_EVERY = 0.1
"""Seconds between two reads of the number of items in flight."""


@dataclass(frozen=True, slots=True)
class _Item:
    name: int | str
    json: str


@dataclass(frozen=True, slots=True)
class _Cursor:
    json: str
    position: int
    """Of the first item after it."""


class _Closed(Exception):
    """The spawner has failed; `Spawner.close` raises the error."""


class Spawner:
    """Spawns items as tasks, on a thread of its own."""

    def __init__(
        self, database: Database, context: TaskContext, how: SpawnOptions, in_flight: int
    ) -> None:
        self._database = database
        self._context = context
        self._how = how
        self._slots = how.max_in_flight - in_flight
        """Items that may be spawned before items in flight complete."""
        self._buffer: deque[_Item | _Cursor] = deque()
        self._oldest = 0.0
        self._changed = Condition()
        self._is_ended = False
        self._is_aborted = False
        self._is_flushing = False
        self._is_spawning = False
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, name="tidegate-spawner", daemon=True)
        self._thread.start()

    def put(self, entry: _Item | _Cursor) -> None:
        """Add an item or a cursor; waits while the buffer is full, raises if the spawner failed."""
        with self._changed:
            if len(self._buffer) >= BUFFERS * self._how.batch:
                self._wait_for_buffer()
            if self._error is not None:
                raise _Closed
            is_first = not self._buffer
            if is_first:
                self._oldest = monotonic()
            self._buffer.append(entry)
            # Other additions need not wake the spawner.
            if is_first or len(self._buffer) >= self._how.batch:
                self._changed.notify_all()

    def _wait_for_buffer(self) -> None:
        """Until a batch was taken, or the task is cancelled."""
        with self._context.stopwatch.resting():
            while len(self._buffer) >= BUFFERS * self._how.batch and self._error is None:
                self._changed.wait(POLL_EVERY)
                self._context.check()

    def flush(self) -> None:
        """Wait until everything that was put is stored; raises when the task is cancelled.

        What the caller writes afterwards is then ordered behind it.
        """
        with self._changed, self._context.stopwatch.resting():
            self._is_flushing = True
            self._changed.notify_all()
            while (self._buffer or self._is_spawning) and self._error is None:
                self._changed.wait(POLL_EVERY)
                self._context.check()  # a cancelled generator writes no more
            self._is_flushing = False
            if self._error is not None:
                raise _Closed

    def close(self) -> None:
        """Spawn everything that is buffered, and raise the spawner's error if it failed."""
        with self._context.stopwatch.resting():
            self._end()

    def abort(self) -> None:
        """Spawn what the limit allows, drop the rest, and raise the spawner's error, if any."""
        self._is_aborted = True
        self._end()

    def _end(self) -> None:
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
                self._slots = self._how.max_in_flight - self._spawn(batch)
                self._note_stored()
                self._wait_for_handlers()
        except BaseException as error:  # noqa: BLE001  raised on the generator's thread
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _next_batch(self) -> list[_Item | _Cursor]:
        """The next batch, once it is full or old enough; empty at the end."""
        with self._changed:
            while not self._is_ended and len(self._buffer) < self._how.batch:
                remaining = self._oldest + self._how.flush_every - monotonic()
                if self._buffer and (remaining <= 0 or self._is_flushing):
                    break
                self._changed.wait(remaining if self._buffer else None)
            batch = self._take()
            self._is_spawning = bool(batch)
            if not self._buffer or len(batch) == self._how.batch:
                self._oldest = monotonic()  # otherwise the rest was there before
            self._changed.notify_all()
            return batch

    def _note_stored(self) -> None:
        """Wake `flush`, before waiting for handlers."""
        with self._changed:
            self._is_spawning = False
            self._changed.notify_all()

    def _take(self) -> list[_Item | _Cursor]:
        """The next entries within the limit; a cursor does not count."""
        batch: list[_Item | _Cursor] = []
        chars, slots = MAX_BATCH_CHARS, self._slots
        while self._buffer and len(batch) < self._how.batch and chars > 0:
            slots -= isinstance(self._buffer[0], _Item)
            if slots < 0:
                break
            batch.append(self._buffer.popleft())
            chars -= len(batch[-1].json)
        return batch

    def _spawn(self, batch: list[_Item | _Cursor]) -> int:
        items = [(it.name, it.json) for it in batch if isinstance(it, _Item)]
        cursors = [(it.json, it.position) for it in batch if isinstance(it, _Cursor)]

        def spawn(connection: Connection) -> int:
            cursor = cursors[-1] if cursors else None
            _, in_flight = flow_tasks.spawn(connection, self._context.claim, items, cursor)
            crash_point("flow.spawn.before_commit")
            return in_flight

        with store_access():
            in_flight = self._database.transact(spawn)
        crash_point("flow.spawn.after_commit")
        return in_flight

    def _wait_for_handlers(self) -> None:
        """Until items may be spawned, or the buffer is to be dropped.

        A cursor is stored at any time, since handlers may wait for state that is written behind it.
        """
        while self._slots <= 0 and not self._may_go_on():
            with self._changed:
                self._changed.wait_for(self._may_go_on, POLL_EVERY)
            place = position_of(self._database, self._context.claim)
            self._slots = self._how.max_in_flight - place.in_flight

    def _may_go_on(self) -> bool:
        with self._changed:
            is_cursor = bool(self._buffer) and isinstance(self._buffer[0], _Cursor)
        return is_cursor or self._is_dropped()

    def _is_dropped(self) -> bool:
        return self._is_aborted or (self._is_ended and self._context.is_cancelled)


def position_of(database: Database, claim: Claim) -> GeneratorPosition:
    """How far a generator has come."""
    with store_access():
        return database.transact(lambda c: flow_tasks.generator_position(c, claim.step_id))


def generate(
    database: Database, context: TaskContext, place: GeneratorPosition, arguments: list[Any]
) -> None:
    """Run a generator from where it was, until its end.

    Raises `FlowCancelled` when another worker is to resume it.
    """
    step = context.part.step
    assert isinstance(step, GeneratorStep)
    context.restore_cursor(place.cursor)
    spawner = Spawner(database, context, step.generating, place.in_flight)
    try:
        _feed(spawner, context, step, place, arguments)
    except _Closed:
        spawner.close()  # which raises its error
    except BaseException:
        spawner.abort()
        raise
    if context.is_cancelled:
        spawner.abort()
    else:
        spawner.close()
    context.check()
    with store_access():
        database.transact(lambda c: _finish(c, context))


def _finish(connection: Connection, context: TaskContext) -> None:
    flow_tasks.finish_generator(connection, context.claim)
    crash_point("flow.finish.before_commit")


def _feed(
    spawner: Spawner,
    context: TaskContext,
    step: GeneratorStep[..., Any, Any],
    place: GeneratorPosition,
    arguments: list[Any],
) -> None:
    position = place.cursor_position
    codec, key = context.part.item, step.generating.key
    assert codec is not None

    def save(value: object) -> None:
        spawner.put(_Cursor(_cursor_json(step.name, value), position))

    context.on_cursor, context.before_write = save, spawner.flush
    items: Iterator[Any] = iter(step.function(context, *arguments))
    try:
        for item in items:
            if context.is_cancelled:
                return  # after the cursor behind the previous item
            if key is not None:
                spawner.put(_Item(_key_of(step.name, key, item), codec.encode(item)))
            elif position >= place.spawned:
                spawner.put(_Item(position, codec.encode(item)))
            position += 1
    finally:
        close = getattr(items, "close", None)
        if close is not None:
            close()


def _key_of(step: str, key: Callable[[Any], object], item: object) -> str:
    """The key of an item; without one, all such items would count as the same."""
    found = key(item)
    if not isinstance(found, str):  # as text, 1 and "1" would be the same
        reason = "it has no key" if found is None else f"its key {found!r:.50} is not a str"
        raise InvalidFlowValue(f"an item of {step!r}", repr(item)[:200], reason)
    return found


def _cursor_json(step: str, value: object) -> str:
    of = f"the cursor of {step!r}"
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, msgspec.MsgspecError) as error:
        raise InvalidFlowValue(of, repr(value), str(error)) from error
    check_storable(of, value, text)
    return text
