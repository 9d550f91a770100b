"""A flow worker: claims tasks of flows, performs them on a few threads, commits in batches.

It has one lease, under a name that is unique to one life of it, and all its claims name it. A
worker that dies is missed when that lease expires: whoever sweeps frees its claims. One that was
only asleep finds its lease gone, drops what it has in hand, and begins another life.

Generators run on threads of their own, so that they never wait for the handlers of their items to
get a thread.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Condition, Lock
from time import monotonic
from typing import TYPE_CHECKING, Self

from tidegate.errors import StepTimedOut
from tidegate.faults import crash_point
from tidegate.flows.steps import StepKind
from tidegate.run.flows.context import TaskContext
from tidegate.run.flows.pace import Facts, InHand, Means, Wish, wishes
from tidegate.run.flows.performing import LetGo, Outcome, Performer, Settled, failed, trying_of
from tidegate.run.flows.pipelines import Pipelines
from tidegate.run.flows.results import Results
from tidegate.run.flows.threads import Threads
from tidegate.run.names import life_of
from tidegate.run.tending import Tending
from tidegate.store import Heartbeat, Wakeups, acquire, flow_tasks
from tidegate.store.flow_pipelines import sweep_pipelines
from tidegate.store.flow_tasks import FLOW_WORKER
from tidegate.store.flows import remove_closed_flows, sweep_flows
from tidegate.store.topics import flow_topic, pipelines_topic

if TYPE_CHECKING:
    from tidegate.flows import Flow
    from tidegate.flows.definition import Definition, Part
    from tidegate.store import Database, Lease
    from tidegate.store.flow_tasks import Claim

log = logging.getLogger(__name__)

LEASE_SECONDS = 6.0
THREADS = 8
GENERATORS = 4
"""Generators that run in one worker at the same time."""
LOOK_EVERY = 0.25
"""Seconds between two looks for work that nobody told of: a pause that is over, a lost wake-up."""
SWEEPS_PER_LEASE = 6
OLD = 0.5
"""Seconds in hand after which it is looked whether a task is still wanted."""
CLOSE_BOUND = 10.0
GRACE = 30.0
KEPT = 30 * 86_400.0
"""Seconds for which a closed run stays."""
REMOVE_EVERY = 60.0


@dataclass
class _Held:
    """A task that this worker has in hand."""

    context: TaskContext
    is_generator: bool
    claimed_at: float
    started_at: float | None = None
    unwanted_at: float | None = None
    is_abandoned: bool = False
    """Whether its function goes on although nobody waits for it."""
    settling: Lock = field(default_factory=Lock)
    """Held by whoever has said what came of it; what its function still gives is dropped."""

    @property
    def is_settled(self) -> bool:
        """Whether it was said what came of it."""
        return self.settling.locked()


class FlowWorker:
    """Works for flows until it is closed."""

    def __init__(  # noqa: PLR0913  most have defaults
        self,
        database: Database,
        flows: Sequence[Flow],
        wakeups: Wakeups,
        threads: int = THREADS,
        seconds: float = LEASE_SECONDS,
        process: str = "",
        look_every: float = LOOK_EVERY,
        *,
        root: str | None = None,
    ) -> None:
        self._database = database
        self._pipelines = Pipelines(database, root, wakeups)
        self._flows: dict[str, Definition] = {it.name: it.definition for it in flows}
        self._parts = dict(_queues(list(self._flows.values())))
        self._queues = deque(self._parts)
        self._threads = threads
        self._generator_threads = GENERATORS
        self._seconds = seconds
        self._process = process
        self._held: dict[Claim, _Held] = {}
        self._in_hand = InHand()
        self._means = Means()
        self._changed = Condition()
        self._is_draining = False
        self._looked_after_at = 0.0
        self.grace = GRACE
        """Seconds for which a handler that nobody wants the result of may go on."""
        self._removed_at = monotonic()
        self.done = 0
        """Tasks that were worked on, whatever came of them."""
        self._performer = Performer(database)
        self._pool = Threads(threads, "tidegate-flow", self._perform)
        self._generators = Threads(GENERATORS, "tidegate-generator", self._perform)
        self._results = Results(database, self._on_settled, self._renounce)
        self._heartbeat = Heartbeat(database, self._on_lost)
        self._own = self._begin_life()
        self._looking = Tending("tidegate-flow-worker", self._look, look_every)
        self._sweeping = Tending(
            "tidegate-flow-sweeper",
            self._sweep,
            seconds / SWEEPS_PER_LEASE,
        )
        self._unsubscribe = [
            wakeups.subscribe(flow_topic(it.name), self._looking.hurry) for it in flows
        ]
        self._unsubscribe += [
            wakeups.subscribe(pipelines_topic(it.name), self._sweeping.hurry) for it in flows
        ]

    @property
    def name(self) -> str:
        """Of this life of it."""
        return self._own.owner

    @property
    def error(self) -> BaseException | None:
        """What has ended it, if anything but closing did."""
        return self._looking.error

    @property
    def in_hand(self) -> int:
        """Tasks that it has claimed and not settled."""
        with self._changed:
            return len(self._held)

    def drain(self, timeout: float) -> bool:
        """Begin nothing more, and finish what is at work; whether that was done in time.

        Generators stop where they are, and others go on with them.
        """
        self._is_draining = True
        self._looking.hurry()
        deadline = monotonic() + timeout
        with self._changed:
            while self._held and (left := deadline - monotonic()) > 0:
                self._let_go_of_what_can_be()
                self._changed.wait(min(left, LOOK_EVERY))
            return not self._held

    def close(self, bound: float = CLOSE_BOUND) -> None:
        """Finish what is quickly finished, give everything else back, and stop."""
        self.drain(bound / 2)
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self._looking.close(bound)
        self._sweeping.close(bound)
        self._abandon("the worker stops")
        with self._changed:
            self._changed.wait_for(lambda: not self._held, bound / 2)
        self._pool.close()
        self._generators.close()
        self._results.close(bound)
        self._try_to_give_back()
        self._heartbeat.close()

    def _try_to_give_back(self) -> None:
        try:
            self._heartbeat.give_back(self._own, [flow_topic(name) for name in self._flows])
        except Exception as trouble:  # noqa: BLE001  a lease that is not renewed expires anyway
            log.warning("the lease of %s expires by itself: %s", self.name, trouble)

    def _let_go_of_what_can_be(self) -> None:
        for held in (*self._pool.take_back(), *self._generators.take_back()):
            self._say(held, LetGo(held.context.claim))
        for held in self._held.values():
            if held.is_generator or trying_of(held.context).is_resumable:
                held.context.cancel("the worker stops")

    # ── lives ──

    def _begin_life(self) -> Lease:
        name = life_of(self._process)
        lease = self._database.transact(
            lambda c: acquire(c, FLOW_WORKER, name, name, self._seconds)
        )
        assert lease is not None, "nobody else has this name"
        self._heartbeat.keep(lease)
        return lease

    def _sweep(self) -> None:
        self._database.transact(sweep_flows)
        self._database.transact(sweep_pipelines)
        if monotonic() - self._removed_at > REMOVE_EVERY:
            self._removed_at = monotonic()
            while self._database.transact(lambda c: remove_closed_flows(c, KEPT)):
                pass  # there may be more than one transaction takes

    def _renounce(self, trouble: BaseException) -> None:
        """What was done cannot be told: only without this life others see what is to be done."""
        log.warning("%s begins another life: %s", self.name, trouble)
        self._try_to_give_back()
        self._looking.hurry()

    def _on_lost(self, lease: Lease) -> None:
        log.warning("%s has lost its lease; others do what it had in hand", lease.owner)
        self._abandon("its worker was taken for dead")
        self._looking.hurry()

    def _abandon(self, reason: str) -> None:
        with self._changed:
            for held in self._held.values():
                held.context.cancel(reason)

    # ── looking for work ──

    def _look(self) -> None:
        if self._own not in self._heartbeat.held:
            self._abandon("its worker was taken for dead")
            self._own = self._begin_life()
        self._look_after_what_is_held()
        while sum(self._claim(wish) for wish in self._wishes()):
            pass  # there may be more

    def _claim(self, wish: Wish) -> int:
        claims = self._database.transact(
            lambda c: flow_tasks.claim(c, self.name, wish.rooms, wish.most)
        )
        if claims:
            crash_point("flow.claim.after_commit")
            self._take(claims)
        return len(claims)

    def _wishes(self) -> list[Wish]:
        """What to claim: a task for each idle thread, and of short ones some ahead."""
        if self._is_draining or self._own not in self._heartbeat.held:
            return []
        self._queues.rotate()  # so that no queue always comes last
        with self._changed:
            free = {queue: self._free(queue) for queue in self._queues}
            generators = [queue for queue in self._queues if self._is_generator(queue)]
            handled = {
                queue: number
                for queue, number in self._in_hand.by_queue.items()
                if not self._is_generator(queue)
            }
            running = sum(self._in_hand.by_queue.values()) - sum(handled.values())
        return wishes(
            Facts(self._threads, handled, self._means.now, free, frozenset(generators)),
            self._generator_threads - running,
        )

    def _free(self, queue: str) -> int | None:
        """How many more of these tasks this worker may have; None: as many as it likes."""
        part = self._parts[queue]
        function = part.handler if part.handler and queue.endswith("[]") else part.step
        most = function.trying.concurrency
        return None if most is None else max(0, most - self._in_hand.by_queue[queue])

    def _is_generator(self, queue: str) -> bool:
        return _is_generator(queue, self._parts[queue])

    def _take(self, claims: Sequence[Claim]) -> None:
        taken = [self._hold(claim) for claim in claims]
        with self._changed:
            for held in taken:
                self._held[held.context.claim] = held
                self._in_hand.change(held.context.claim.queue, 1)
        for held in taken:
            (self._generators if held.is_generator else self._pool).put(held)

    def _hold(self, claim: Claim) -> _Held:
        flow, _, _ = claim.queue.partition("/")
        context = TaskContext(self._database, self._flows[flow], claim, self._pipelines)
        return _Held(context, self._is_generator(claim.queue), monotonic())

    # ── performing ──

    def _perform(self, held: _Held) -> None:
        held.started_at = monotonic()
        outcome: Outcome = Settled(held.context.claim)
        try:
            outcome = self._performer.perform(held.context)
        except Exception as trouble:  # noqa: BLE001  the database is gone for longer than is borne
            self._renounce(trouble)
        self._means.add(held.context.claim.queue, monotonic() - held.started_at)
        self._say(held, outcome)
        with self._changed:
            if held.is_abandoned:
                self._count_threads(held, 1)

    def _say(self, held: _Held, outcome: Outcome) -> None:
        if held.settling.acquire(blocking=False):
            self._results.add(outcome)

    def _on_settled(self, outcomes: Sequence[Outcome]) -> None:
        with self._changed:
            for it in outcomes:
                if self._held.pop(it.claim, None) is not None:
                    self._in_hand.change(it.claim.queue, -1)
                    self.done += 1
            self._changed.notify_all()
        self._looking.hurry()

    def _look_after_what_is_held(self) -> None:
        """Tell those whose result nobody wants, and give up on those that took too long."""
        now = monotonic()
        if now - self._looked_after_at < OLD:
            return
        self._looked_after_at = now
        with self._changed:
            held = list(self._held.values())  # first: what is settled is forgotten afterwards
        ours = self._database.transact(lambda c: flow_tasks.held_by(c, self.name))
        self._put_strays_back(ours, held)
        old = [it for it in held if now - it.claimed_at > OLD and not it.is_settled]
        runs = {it.context.run for it in old}
        unwanted = self._database.transact(lambda c: flow_tasks.unwanted_among(c, runs))
        names = {it.name for it in ours}
        for it in old:
            if it.context.run in unwanted:
                self._give_up(it, now)
            elif it.context.claim.name not in names:
                it.context.cancel("somebody else has it")
            self._check_time(it, now)

    def _put_strays_back(self, ours: Sequence[Claim], held: Sequence[_Held]) -> None:
        """When the answer to a claim is lost, the database knows of tasks that nobody here does."""
        known = {it.context.claim.name for it in held}
        strays = [it for it in ours if it.name not in known]
        if strays:
            log.warning("%d tasks were claimed unheard and are put back", len(strays))
            self._database.transact(lambda c: flow_tasks.put_back(c, self.name, strays))

    def _give_up(self, held: _Held, now: float) -> None:
        held.context.cancel("it was given up")
        held.unwanted_at = held.unwanted_at or now
        if now - held.unwanted_at > self.grace:
            self._go_on_without(held, LetGo(held.context.claim))

    def _check_time(self, held: _Held, now: float) -> None:
        most = trying_of(held.context).timeout
        if most is None or held.started_at is None or now - held.started_at <= most:
            return
        context = held.context
        late = StepTimedOut(context.run, context.step, most)
        context.cancel(str(late))
        self._go_on_without(held, failed(context, late))

    def _go_on_without(self, held: _Held, outcome: Outcome) -> None:
        """Say what became of a task although its function goes on; that keeps its thread."""
        with self._changed:
            if not held.settling.acquire(blocking=False):
                return
            if held.started_at is not None:
                held.is_abandoned = True
                self._count_threads(held, -1)
        self._results.add(outcome)

    def _count_threads(self, held: _Held, number: int) -> None:
        if held.is_generator:
            self._generator_threads += number
        else:
            self._threads += number

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _queues(flows: Sequence[Definition]) -> Iterator[tuple[str, Part]]:
    for flow in flows:
        for name, part in flow.steps.items():
            yield f"{flow.name}/{name}", part
            if part.item is not None:
                yield f"{flow.name}/{name}[]", part


def _is_generator(queue: str, part: Part) -> bool:
    return part.step.kind is StepKind.GENERATOR and not queue.endswith("[]")


@contextmanager
def working(
    database: Database,
    *flows: Flow,
    threads: int = THREADS,
    process: str = "",
    root: str | None = None,
) -> Iterator[FlowWorker]:
    """A worker for these flows in this process, until the block is left.

    `root` is where the deployment's files are; steps that run pipelines need it.
    """
    with (
        Wakeups(database) as wakeups,
        FlowWorker(database, flows, wakeups, threads, process=process, root=root) as worker,
    ):
        yield worker
