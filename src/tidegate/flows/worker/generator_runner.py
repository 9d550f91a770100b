"""Running a generator: its items become tasks in batches, and it waits when handlers fall behind.

The generator runs on its caller's thread and puts items into a short buffer. A second thread makes
them tasks: a batch at a time, or fewer when the oldest has waited long enough, so that a slow
generator does not sit on items. While too many are in flight it takes none, the buffer fills, and
the generator waits, which does not count towards its timeout.

Whatever ends a generator before its end is told at once: of the buffer, what there is room for
becomes tasks, and the rest is dropped, to be yielded again.
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
from tidegate.flows.worker.store_errors import ours
from tidegate.store.flows import tasks as flow_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidegate.flows.model.steps import Generating
    from tidegate.flows.worker.task_context import TaskContext
    from tidegate.store import Connection, Database
    from tidegate.store.flows.tasks import Claim, GeneratorPlace

BUFFERS = 2
"""Batches that a generator may be ahead."""
LARGEST = 8_000_000
"""Characters above which a batch takes no more items: PostgreSQL has a limit for one document."""
LOOK_AT_HANDLERS_EVERY = 0.1
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
        self._has_checkpoints = False
        self._is_flushing = False
        self._is_spawning = False
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, name="tidegate-spawner", daemon=True)
        self._thread.start()

    def put(self, entry: _Item | _Cursor) -> None:
        """Wait for room; raises what has ended the spawner."""
        with self._changed:
            if len(self._waiting) >= BUFFERS * self._how.batch:
                self._wait_for_buffer()
            if self._error is not None:
                raise _Closed
            is_first = not self._waiting
            if is_first:
                self._oldest = monotonic()
            self._waiting.append(entry)
            # In between the spawner would only look at the clock.
            if is_first or len(self._waiting) >= self._how.batch:
                self._changed.notify_all()

    def _wait_for_buffer(self) -> None:
        """Until a batch was taken, which wakes it, or nobody wants the items."""
        with self._context.working.resting():
            while len(self._waiting) >= BUFFERS * self._how.batch and self._error is None:
                self._changed.wait(LOOK_AT_HANDLERS_EVERY)
                self._context.check()

    def flush(self) -> None:
        """Wait until everything that was put is stored, so that what is written then is behind it.

        The spawner wakes it after each batch; it ends when nobody wants the items any more.
        """
        with self._changed, self._context.working.resting():
            self._is_flushing = True
            self._changed.notify_all()
            while (self._waiting or self._is_spawning) and self._error is None:
                self._changed.wait(LOOK_AT_HANDLERS_EVERY)
                self._context.check()  # who is cancelled here writes no more
            self._is_flushing = False
            if self._error is not None:
                raise _Closed

    def close(self) -> None:
        """Make what is left tasks, and raise what went wrong."""
        with self._context.working.resting():
            self._end()

    def checkpoint(self) -> None:
        """Make of what is left tasks what there is room for, and raise what went wrong."""
        self._has_checkpoints = True
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
                self._room = self._how.max_in_flight - self._spawn(batch)
                self._note_stored()
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
                if self._waiting and (left <= 0 or self._is_flushing):
                    break
                self._changed.wait(left if self._waiting else None)
            batch = self._take()
            self._is_spawning = bool(batch)
            if not self._waiting or len(batch) == self._how.batch:
                self._oldest = monotonic()  # else what is left was there before
            self._changed.notify_all()
            return batch

    def _note_stored(self) -> None:
        """Wakes who waits for that, before there is room for more."""
        with self._changed:
            self._is_spawning = False
            self._changed.notify_all()

    def _take(self) -> list[_Item | _Cursor]:
        """What comes next, as far as there is room; a cursor needs none."""
        batch: list[_Item | _Cursor] = []
        left, room = LARGEST, self._room
        while self._waiting and len(batch) < self._how.batch and left > 0:
            room -= isinstance(self._waiting[0], _Item)
            if room < 0:
                break
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

        with ours():
            in_flight = self._database.transact(spawn)
        crash_point("flow.spawn.after_commit")
        return in_flight

    def _wait_for_handlers(self) -> None:
        """Until there is room, or the generator has ended and whatever waits is to be dropped.

        A cursor needs none, and handlers may wait for what is written behind it.
        """
        while self._room <= 0 and not self._need_not_wait():
            with self._changed:
                self._changed.wait_for(self._need_not_wait, LOOK_AT_HANDLERS_EVERY)
            place = place_of(self._database, self._context.claim)
            self._room = self._how.max_in_flight - place.in_flight

    def _need_not_wait(self) -> bool:
        with self._changed:
            is_cursor = bool(self._waiting) and isinstance(self._waiting[0], _Cursor)
        return is_cursor or self._is_given_up()

    def _is_given_up(self) -> bool:
        return self._has_checkpoints or (self._is_ended and self._context.is_cancelled)


def place_of(database: Database, claim: Claim) -> GeneratorPlace:
    """Where a generator is."""
    with ours():
        return database.transact(lambda c: flow_tasks.generator_place(c, claim.step_id))


def generate(
    database: Database, context: TaskContext, place: GeneratorPlace, arguments: list[Any]
) -> None:
    """Run a generator from where it was, until its end.

    Raises `FlowCancelled` when somebody else is to go on.
    """
    step = context.part.step
    assert isinstance(step, GeneratorStep)
    context.restore_cursor(place.cursor)
    spawner = Spawner(database, context, step.generating, place.in_flight)
    try:
        _feed(spawner, context, step, place, arguments)
    except _Closed:
        spawner.close()  # which tells why
    except BaseException:
        spawner.checkpoint()
        raise
    if context.is_cancelled:
        spawner.checkpoint()
    else:
        spawner.close()
    context.check()
    with ours():
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

    context.on_cursor, context.before_write = save, spawner.flush
    items: Iterator[Any] = iter(step.function(context, *arguments))
    try:
        for item in items:
            if context.is_cancelled:
                return  # after the cursor that was saved behind the item before
            if key is not None:
                spawner.put(_Item(_known_by(step.name, key, item), codec.encode(item)))
            elif position >= place.spawned:
                spawner.put(_Item(position, codec.encode(item)))
            position += 1
    finally:
        close = getattr(items, "close", None)
        if close is not None:
            close()


def _known_by(step: str, key: Callable[[Any], object], item: object) -> str:
    """What identifies an item; without it all such items would be taken for the same one."""
    found = key(item)
    if not isinstance(found, str):  # as texts, 1 and "1" would be the same
        reason = "it has no key" if found is None else f"its key {found!r:.50} is no str"
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
