"""What a worker has in hand: taken, performed on its threads, looked after, and let go.

Nothing waits for ever. A task that no thread begins with soon goes back. A function that takes
longer than it may, or whose result nobody wants and who does not listen, is gone on without: what
came of its task is said, and its thread counts as none until the function ends. A generator that
waits for the handlers of a paused run goes back too, for that may take days.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Condition, Lock
from time import monotonic
from typing import TYPE_CHECKING

from tidegate.errors import StepTimedOut
from tidegate.flows.worker.claim_sizing import AHEAD, PATIENCE, InHand
from tidegate.flows.worker.executor import LetGo, Outcome, failed, trying_of
from tidegate.runtime.daemon_pool import DaemonPool
from tidegate.store.flows import tasks as flow_tasks

if TYPE_CHECKING:
    from tidegate.flows.worker.task_context import TaskContext
    from tidegate.store import Connection, Database
    from tidegate.store.flows.tasks import Claim

log = logging.getLogger(__name__)

GENERATORS = 4
"""Generators that run in one worker at the same time."""
OLD = 0.5
"""Seconds in hand after which it is looked whether a task is still wanted."""
LET_GO_EVERY = 0.25
"""Seconds between two looks at what a worker that drains can let go of."""


@dataclass
class InFlightTask:
    """A task that this worker has in hand."""

    context: TaskContext
    is_generator: bool
    claimed_at: float = field(default_factory=monotonic)
    started_at: float | None = None
    unwanted_at: float | None = None
    is_abandoned: bool = False
    """Whether its function goes on although nobody waits for it."""
    execution: Future[None] | None = None
    """Its call on a thread; cancelled if the task goes back before that starts."""
    settling: Lock = field(default_factory=Lock)
    """Held by whoever has said what came of it; what its function still gives is dropped."""

    @property
    def claim(self) -> Claim:
        """Under which it is held."""
        return self.context.claim

    @property
    def is_settled(self) -> bool:
        """Whether it was said what came of it."""
        return self.settling.locked()

    def start(self) -> None:
        """A thread begins with it."""
        self.started_at = monotonic()
        self.context.working.start()

    def took(self, now: float) -> float:
        """Seconds since it was begun."""
        return 0.0 if self.started_at is None else now - self.started_at

    def has_waited(self, now: float) -> bool:
        """Whether no thread has begun with it for longer than it should wait."""
        is_waiting = self.started_at is None and not self.is_settled
        return is_waiting and now - self.claimed_at > PATIENCE


@dataclass(frozen=True, slots=True)
class Counted:
    """How much a worker has in hand, and what it has to perform it on."""

    threads: int
    stuck: int
    """Of these threads, at one task for longer than the worker looks ahead."""
    generator_threads: int
    by_queue: Mapping[str, int]
    abandoned: Mapping[str, int]
    """By queue, those gone on without whose function goes on."""


class InFlightTasks:
    """The tasks that a worker has in hand, and its threads.

    `perform` is called on them; `say` takes what came of a task.
    """

    def __init__(
        self,
        database: Database,
        threads: int,
        perform: Callable[[InFlightTask], None],
        say: Callable[[Outcome], None],
    ) -> None:
        self._database = database
        self._say = say
        self._held: dict[Claim, InFlightTask] = {}
        self._in_hand = InHand()
        self._abandoned = InHand()
        self._threads = threads
        self._generator_threads = GENERATORS
        self._perform = perform
        self._pool = DaemonPool(threads, "tidegate-flow")
        self._generators = DaemonPool(GENERATORS, "tidegate-generator")
        self._changed = Condition()
        self._looked_at = 0.0

    def __len__(self) -> int:
        with self._changed:
            return len(self._held)

    def counted(self) -> Counted:
        """How much there is."""
        now = monotonic()
        with self._changed:
            running = [it for it in self._held.values() if not (it.is_generator or it.is_settled)]
            return Counted(
                self._threads,
                sum(it.took(now) > AHEAD for it in running),
                self._generator_threads,
                dict(self._in_hand.by_queue),
                dict(self._abandoned.by_queue),
            )

    def take(self, taken: Sequence[InFlightTask]) -> None:
        """Perform these as soon as threads are free."""
        with self._changed:
            for held in taken:
                self._held[held.claim] = held
                self._in_hand.change(held.claim.queue, 1)
        for held in taken:
            pool = self._generators if held.is_generator else self._pool
            held.execution = pool.submit(self._perform, held)

    def settle(self, held: InFlightTask, outcome: Outcome) -> None:
        """Say what came of a task, unless that was said."""
        if held.settling.acquire(blocking=False):
            self._say(outcome)

    def end(self, held: InFlightTask) -> None:
        """The function of a task has ended, so its thread is free."""
        with self._changed:
            if held.is_abandoned:
                self._count_abandoned(held, -1)

    def forget(self, outcomes: Iterable[Outcome]) -> int:
        """What came of these is written; how many were in hand."""
        with self._changed:
            before = len(self._held)
            for it in outcomes:
                if self._held.pop(it.claim, None) is not None:
                    self._in_hand.change(it.claim.queue, -1)
            self._changed.notify_all()
            return before - len(self._held)

    def cancel(self, reason: str) -> None:
        """Tell every function that nobody wants its result."""
        with self._changed:
            for held in self._held.values():
                held.context.cancel(reason)

    def drain(self, timeout: float) -> bool:
        """Let go of what can be and wait for the rest; whether there is none of it in time."""
        deadline = monotonic() + timeout
        with self._changed:
            while self._held and (left := deadline - monotonic()) > 0:
                self._let_go_of_what_can_be()
                self._changed.wait(min(left, LET_GO_EVERY))
            return not self._held

    def close(self, bound: float) -> None:
        """Wait so long until nothing is in hand, and let the threads end."""
        with self._changed:
            self._changed.wait_for(lambda: not self._held, bound)
        self._pool.close(0.0)
        self._generators.close(0.0)

    def look_after(self, owner: str, grace: float) -> None:
        """Put back what cannot begin, tell whom nobody wants anything of, go on without the late.

        `grace` is for how many seconds those may go on whom nobody wants anything of.
        """
        now = monotonic()
        if now - self._looked_at < OLD:
            return
        self._looked_at = now
        with self._changed:
            held = list(self._held.values())  # first: what is settled is forgotten afterwards
        ours = self._database.transact(lambda c: flow_tasks.held_by(c, owner))
        self._put_strays_back(owner, ours, held)
        if any(it.has_waited(now) for it in held):
            self._let_go_of_what_waits()
        old = [it for it in held if now - it.claimed_at > OLD and not it.is_settled]
        self._tell(old, {it.name for it in ours}, grace, now)
        for it in old:
            self._check_time(it)

    def _put_strays_back(
        self, owner: str, ours: Sequence[Claim], held: Sequence[InFlightTask]
    ) -> None:
        """When the answer to a claim is lost, the database knows of tasks that nobody here does."""
        known = {it.claim.name for it in held}
        strays = [it for it in ours if it.name not in known]
        if strays:
            log.warning("%d tasks were claimed unheard and are put back", len(strays))
            self._database.transact(lambda c: flow_tasks.put_back(c, owner, strays))

    def _let_go_of_what_waits(self) -> None:
        with self._changed:
            for held in self._held.values():
                if held.execution is not None and held.execution.cancel():
                    self.settle(held, LetGo(held.claim))

    def _let_go_of_what_can_be(self) -> None:
        self._let_go_of_what_waits()
        for held in self._held.values():
            if held.is_generator or trying_of(held.context).is_resumable:
                held.context.cancel("the worker stops")

    def _tell(
        self, old: Sequence[InFlightTask], ours: Collection[object], grace: float, now: float
    ) -> None:
        """Those whose result nobody wants, here or at all."""
        resting = [it for it in old if it.is_generator and not it.context.working.is_running]
        unwanted = self._among(flow_tasks.unwanted_among, old)
        paused = self._among(flow_tasks.paused_among, resting)
        for it in old:
            if it.context.run in unwanted:
                self._give_up(it, grace, now)
            elif it.claim.name not in ours:
                it.context.cancel("somebody else has it")
        for it in resting:
            if it.context.run in paused:
                it.context.cancel("the run is paused")

    def _among(
        self, asked: Callable[[Connection, Iterable[int]], set[int]], held: Sequence[InFlightTask]
    ) -> set[int]:
        runs = {it.context.run for it in held}
        return self._database.transact(lambda c: asked(c, runs)) if runs else set()

    def _give_up(self, held: InFlightTask, grace: float, now: float) -> None:
        held.context.cancel("it was given up")
        held.unwanted_at = held.unwanted_at or now
        if now - held.unwanted_at > grace:
            self._go_on_without(held, LetGo(held.claim))

    def _check_time(self, held: InFlightTask) -> None:
        context = held.context
        most = trying_of(context).timeout
        if most is None or context.working.seconds <= most:
            return
        late = StepTimedOut(context.run, context.step, most)
        context.cancel(str(late))
        self._go_on_without(held, failed(context, late))

    def _go_on_without(self, held: InFlightTask, outcome: Outcome) -> None:
        """Say what became of a task although its function goes on; that keeps its thread."""
        with self._changed:
            if not held.settling.acquire(blocking=False):
                return
            if held.started_at is not None:
                held.is_abandoned = True
                self._count_abandoned(held, 1)
        self._say(outcome)

    def _count_abandoned(self, held: InFlightTask, number: int) -> None:
        self._abandoned.change(held.claim.queue, number)
        if held.is_generator:
            self._generator_threads -= number
        else:
            self._threads -= number
