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
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from os import environ
from time import monotonic
from typing import TYPE_CHECKING, Self

from tidegate.errors import DuplicateName, NameTaken
from tidegate.faults import crash_point
from tidegate.flows.model.steps import StepKind
from tidegate.flows.worker.claim_sizing import Facts, Means, Wish, wishes
from tidegate.flows.worker.executor import Outcome, Settled, TaskExecutor
from tidegate.flows.worker.in_flight import Counted, InFlightTask, InFlightTasks
from tidegate.flows.worker.pipeline_runs import Pipelines
from tidegate.flows.worker.result_committer import Results
from tidegate.flows.worker.task_context import TaskContext
from tidegate.flows.worker.worker_name import KIND as NAME
from tidegate.flows.worker.worker_name import take_name
from tidegate.runtime.periodic import PeriodicTask
from tidegate.runtime.worker.owner_id import new_owner_id
from tidegate.settings import Settings
from tidegate.store import ClockWatch, LeaseKeeper, Notifications, acquire
from tidegate.store.core.topics import flow_topic, pipelines_topic
from tidegate.store.flows import tasks as flow_tasks
from tidegate.store.flows.pipeline_links import sweep_pipelines
from tidegate.store.flows.runs import remove_closed_flows, sweep_flows
from tidegate.store.flows.tasks import FLOW_WORKER

if TYPE_CHECKING:
    from tidegate.flows import Flow
    from tidegate.flows.model.definition import Definition, Part
    from tidegate.store import Database, Lease
    from tidegate.store.flows.tasks import Claim

log = logging.getLogger(__name__)

LEASE_SECONDS = 6.0
THREADS = 8
LOOK_FOR_WORK_EVERY = 0.25
"""Seconds between two looks for work that nobody told of: a pause that is over, a lost wake-up."""
SWEEPS_PER_LEASE = 6
CLOSE_BOUND = 10.0
GRACE = 30.0
KEPT = 30 * 86_400.0
"""Seconds for which a closed run stays."""
REMOVE_EVERY = 60.0


class FlowWorker:
    """Works for flows until it is closed; raises `NameTaken` if a running worker has the name.

    `process` is what it is called; without it, it may be one of many.
    """

    def __init__(  # noqa: PLR0913  most have defaults
        self,
        database: Database,
        flows: Sequence[Flow],
        notifications: Notifications,
        threads: int = THREADS,
        seconds: float = LEASE_SECONDS,
        process: str = "",
        look_every: float = LOOK_FOR_WORK_EVERY,
        *,
        root: str | None = None,
    ) -> None:
        self._database = database
        self._seconds = seconds
        self._process = process
        self._called = self._take_name()
        self._pipelines = Pipelines(database, root, notifications)
        self._flows = _by_name(flows)
        self._parts = dict(_queues(list(self._flows.values())))
        self._queues = deque(self._parts)
        self._means = Means()
        self._is_draining = False
        self.grace = GRACE
        """Seconds for which a handler that nobody wants the result of may go on."""
        self._removed_at = monotonic()
        settings = Settings.from_environment(environ)
        self._clock = ClockWatch(database, settings.clock_settle_seconds)
        self.done = 0
        """Tasks that were worked on, whatever came of them."""
        self._performer = TaskExecutor(database)
        self._results = Results(database, self._on_settled, self._renounce)
        self._holding = InFlightTasks(database, threads, self._perform, self._results.add)
        self._heartbeat = LeaseKeeper(database, self._on_lost)
        if self._called is not None:
            self._heartbeat.keep(self._called)
        self._own = self._begin_life()
        self._looking = PeriodicTask("tidegate-flow-worker", self._look, look_every)
        self._sweeping = PeriodicTask(
            "tidegate-flow-sweeper",
            self._sweep,
            seconds / SWEEPS_PER_LEASE,
        )
        self._unsubscribe = [
            notifications.subscribe(flow_topic(name), self._looking.run_now) for name in self._flows
        ]
        self._unsubscribe += [
            notifications.subscribe(pipelines_topic(name), self._sweeping.run_now)
            for name in self._flows
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
        return len(self._holding)

    def drain(self, timeout: float) -> bool:
        """Begin nothing more, and finish what is at work; whether that was done in time.

        Generators stop where they are, and others go on with them.
        """
        self._is_draining = True
        self._looking.run_now()
        return self._holding.drain(timeout)

    def close(self, bound: float = CLOSE_BOUND) -> None:
        """Finish what is quickly finished, give everything else back, and stop."""
        self.drain(bound / 2)
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self._looking.close(bound)
        self._sweeping.close(bound)
        self._holding.cancel("the worker stops")
        self._holding.close(bound / 2)
        self._results.close(bound)
        self._try_to_leave(self._heartbeat.give_back)
        self._give_name_back()
        self._heartbeat.close()

    def _try_to_leave(self, how: Callable[[Lease, list[str]], bool]) -> None:
        try:
            how(self._own, [flow_topic(name) for name in self._flows])
        except Exception as trouble:  # noqa: BLE001  a lease that is not renewed expires anyway
            log.warning("the lease of %s expires by itself: %s", self.name, trouble)

    # ── lives ──

    def _begin_life(self) -> Lease:
        name = new_owner_id(self._process)
        lease = self._database.transact(
            lambda c: acquire(c, FLOW_WORKER, name, name, self._seconds)
        )
        assert lease is not None, "nobody else has this name"
        self._heartbeat.keep(lease)
        return lease

    def _take_name(self) -> Lease | None:
        if not self._process:
            return None
        return self._database.transact(lambda c: take_name(c, self._process, self._seconds))

    def _keep_name(self) -> None:
        """Take the name again after it was lost; a worker that took it meanwhile keeps it."""
        try:
            self._called = self._take_name()
        except NameTaken as taken:
            log.warning("%s works on without its name: %s", self.name, taken)
        else:
            if self._called is not None:
                self._heartbeat.keep(self._called)

    def _give_name_back(self) -> None:
        if self._called is None:
            return
        try:
            self._heartbeat.give_back(self._called)
        except Exception as trouble:  # noqa: BLE001  a lease that is not renewed expires anyway
            log.warning("the name %s is free when its lease expires: %s", self._process, trouble)

    def _sweep(self) -> None:
        self._database.transact(sweep_flows)
        self._database.transact(sweep_pipelines)
        if monotonic() - self._removed_at > REMOVE_EVERY:
            self._removed_at = monotonic()
            while self._clock.believes(KEPT) and self._remove_closed():
                pass  # there may be more than one transaction takes

    def _remove_closed(self) -> int:
        return self._database.transact(lambda c: remove_closed_flows(c, KEPT))

    def _renounce(self, owners: Collection[str], trouble: BaseException) -> None:
        """What was done cannot be told: only without this life others see what is to be done.

        Nothing happens when the lives whose trouble it was are over.
        """
        if self.name not in owners:
            return
        log.warning("%s begins another life: %s", self.name, trouble)
        self._try_to_leave(self._heartbeat.die)
        self._looking.run_now()

    def _on_lost(self, lease: Lease) -> None:
        if lease.kind == NAME:
            log.warning("%s has lost the lease of its name %s", self.name, lease.key)
            return
        log.warning("%s has lost its lease; others do what it had in hand", lease.owner)
        self._holding.cancel("its worker was taken for dead")
        self._looking.run_now()

    # ── looking for work ──

    def _look(self) -> None:
        if self._own not in self._heartbeat.held:
            self._holding.cancel("its worker was taken for dead")
            self._own = self._begin_life()
            self._keep_name()
        self._holding.look_after(self.name, self.grace)
        while sum(self._claim(wish) for wish in self._wishes()):
            pass  # there may be more

    def _claim(self, wish: Wish) -> int:
        claims = self._database.transact(
            lambda c: flow_tasks.claim(c, self.name, wish.rooms, wish.most)
        )
        if claims:
            crash_point("flow.claim.after_commit")
            self._holding.take([self._hold(claim) for claim in claims])
        return len(claims)

    def _wishes(self) -> list[Wish]:
        """What to claim: a task for each idle thread, and of short ones some ahead."""
        if self._is_draining or self._own not in self._heartbeat.held:
            return []
        self._queues.rotate()  # so that no queue always comes last
        counted = self._holding.counted()
        free = {queue: self._free(queue, counted) for queue in self._queues}
        generators = frozenset(queue for queue in self._queues if self._is_generator(queue))
        handled = {it: number for it, number in counted.by_queue.items() if it not in generators}
        running = sum(counted.by_queue.values()) - sum(handled.values())
        facts = Facts(counted.threads, handled, self._means.now, free, generators, counted.stuck)
        return wishes(facts, counted.generator_threads - running)

    def _free(self, queue: str, counted: Counted) -> int | None:
        """How many more of these tasks this worker may have; None: as many as it likes."""
        part = self._parts[queue]
        function = part.handler if part.handler and queue.endswith("[]") else part.step
        most = function.trying.concurrency
        running = counted.by_queue.get(queue, 0) + counted.abandoned.get(queue, 0)
        return None if most is None else max(0, most - running)

    def _is_generator(self, queue: str) -> bool:
        return _is_generator(queue, self._parts[queue])

    def _hold(self, claim: Claim) -> InFlightTask:
        flow, _, _ = claim.queue.partition("/")
        context = TaskContext(self._database, self._flows[flow], claim, self._pipelines)
        return InFlightTask(context, self._is_generator(claim.queue))

    # ── performing ──

    def _perform(self, held: InFlightTask) -> None:
        held.start()
        outcome: Outcome = Settled(held.claim)
        try:
            outcome = self._performer.perform(held.context)
        except Exception as trouble:  # noqa: BLE001  the database is gone for longer than is borne
            self._renounce({held.claim.owner}, trouble)
        self._means.add(held.claim.queue, held.took(monotonic()))
        self._holding.settle(held, outcome)
        self._holding.end(held)

    def _on_settled(self, outcomes: Sequence[Outcome]) -> None:
        self.done += self._holding.forget(outcomes)
        self._looking.run_now()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _by_name(flows: Sequence[Flow]) -> dict[str, Definition]:
    """Raises `DuplicateName` for two flows of one name: tasks only tell the name of theirs."""
    found: dict[str, Flow] = {}
    for flow in flows:
        first = found.setdefault(flow.name, flow)
        if first is not flow:
            raise DuplicateName(flow.at, "flow", flow.name, first.at)
    return {name: flow.definition for name, flow in found.items()}


def _queues(flows: Sequence[Definition]) -> Iterator[tuple[str, Part]]:
    for flow in flows:
        for name, part in flow.steps.items():
            yield f"{flow.name}/{name}", part
            if part.item is not None:
                yield f"{flow.name}/{name}[]", part


def _is_generator(queue: str, part: Part) -> bool:
    return part.step.kind is StepKind.GENERATOR and not queue.endswith("[]")


@contextmanager
def flow_worker(
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
        Notifications(database) as notifications,
        FlowWorker(database, flows, notifications, threads, process=process, root=root) as worker,
    ):
        yield worker
