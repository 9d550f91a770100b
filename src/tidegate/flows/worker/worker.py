"""A flow worker: claims tasks of flows, executes them on its threads, commits outcomes in batches.

A worker has one lease, under a name that is unique to each registration, and all its claims name
that lease. When the lease expires, the sweep of any worker releases the claims. A worker that finds
its lease expired, as after a suspension, cancels its tasks and registers under another name.

Generators run on threads of their own, so that they never wait for a thread behind the handlers of
their items.
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
from tidegate.flows.worker.claim_sizing import (
    ClaimFacts,
    ClaimRequest,
    TaskDurations,
    claim_requests,
)
from tidegate.flows.worker.executor import TaskExecutor, TaskOutcome, TaskSettled
from tidegate.flows.worker.in_flight import InFlightCounts, InFlightTask, InFlightTasks
from tidegate.flows.worker.pipeline_runs import PipelineRuns
from tidegate.flows.worker.result_committer import ResultCommitter
from tidegate.flows.worker.task_context import TaskContext
from tidegate.flows.worker.worker_name import KIND as NAME
from tidegate.flows.worker.worker_name import take_name
from tidegate.runtime.periodic import PeriodicTask
from tidegate.runtime.worker.owner_id import new_owner_id
from tidegate.settings import DEFAULTS, Settings
from tidegate.store import ClockWatch, LeaseKeeper, Notifications, acquire
from tidegate.store.core.topics import flow_topic, pipelines_topic
from tidegate.store.flows import tasks as flow_tasks
from tidegate.store.flows.pipeline_links import sweep_pipelines
from tidegate.store.flows.runs import remove_closed_flows, sweep_flows
from tidegate.store.flows.tasks import FLOW_WORKER

if TYPE_CHECKING:
    from tidegate.flows import Flow
    from tidegate.flows.model.definition import Definition, StepDefinition
    from tidegate.store import Database, Lease
    from tidegate.store.flows.tasks import Claim

log = logging.getLogger(__name__)

LEASE_SECONDS = DEFAULTS.lease_seconds
THREADS = 8
POLL_EVERY = 0.25
"""Seconds between two claims without a notification: for backoffs that end, and lost ones."""
SWEEPS_PER_LEASE = 6
CLOSE_BOUND = 10.0
GRACE = 30.0
RETENTION = 30 * 86_400.0
"""Seconds for which a closed run is kept."""
REMOVE_EVERY = 60.0


class FlowWorker:
    """Executes tasks of flows until it is closed; raises `NameTaken` if its name is in use.

    `process` is the worker's name; without it, several workers may run side by side unnamed.
    """

    def __init__(  # noqa: PLR0913  most have defaults
        self,
        database: Database,
        flows: Sequence[Flow],
        notifications: Notifications,
        threads: int = THREADS,
        seconds: float = LEASE_SECONDS,
        process: str = "",
        look_every: float = POLL_EVERY,
        *,
        root: str | None = None,
    ) -> None:
        self._database = database
        self._seconds = seconds
        self._process = process
        self._name_lease = self._take_name()
        self._pipelines = PipelineRuns(database, root, notifications)
        self._flows = _by_name(flows)
        self._parts = dict(_queues(list(self._flows.values())))
        self._queues = deque(self._parts)
        self._durations = TaskDurations()
        self._is_draining = False
        self.grace = GRACE
        """Seconds for which a function may go on after its run was closed."""
        self._removed_at = monotonic()
        settings = Settings.from_environment(environ)
        self._clock = ClockWatch(database, settings.clock_settle_seconds)
        self.done = 0
        """Tasks whose outcome was committed."""
        self._executor = TaskExecutor(database)
        self._results = ResultCommitter(database, self._on_settled, self._give_up_lease)
        self._in_flight = InFlightTasks(database, threads, self._execute, self._results.add)
        self._heartbeat = LeaseKeeper(database, self._on_lost)
        if self._name_lease is not None:
            self._heartbeat.keep(self._name_lease)
        self._lease = self._register()
        self._claiming = PeriodicTask("tidegate-flow-worker", self._claim_all, look_every)
        self._sweeping = PeriodicTask(
            "tidegate-flow-sweeper",
            self._sweep,
            seconds / SWEEPS_PER_LEASE,
        )
        self._unsubscribe = [
            notifications.subscribe(flow_topic(name), self._claiming.run_now)
            for name in self._flows
        ]
        self._unsubscribe += [
            notifications.subscribe(pipelines_topic(name), self._sweeping.run_now)
            for name in self._flows
        ]

    @property
    def name(self) -> str:
        """The owner of its current lease."""
        return self._lease.owner

    @property
    def error(self) -> BaseException | None:
        """What has stopped the worker, if it was not closed."""
        return self._claiming.error

    @property
    def in_flight_count(self) -> int:
        """Claimed tasks whose outcome is not committed."""
        return len(self._in_flight)

    def drain(self, timeout: float) -> bool:
        """Claim nothing more and finish tasks in flight; whether that was done in time.

        Generators stop where they are, and other workers resume them.
        """
        self._is_draining = True
        self._claiming.run_now()
        return self._in_flight.drain(timeout)

    def close(self, bound: float = CLOSE_BOUND) -> None:
        """Finish what ends within half the bound, return every other task, and stop."""
        self.drain(bound / 2)
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self._claiming.close(bound)
        self._sweeping.close(bound)
        self._in_flight.cancel("the worker stops")
        self._in_flight.close(bound / 2)
        self._results.close(bound)
        self._try_to_release(self._heartbeat.release)
        self._release_name()
        self._heartbeat.close()

    def _try_to_release(self, release: Callable[[Lease, list[str]], bool]) -> None:
        try:
            release(self._lease, [flow_topic(name) for name in self._flows])
        except Exception as error:  # noqa: BLE001  a lease that is not renewed expires anyway
            log.warning("could not release the lease of %s; it will expire: %s", self.name, error)

    # ── leases ──

    def _register(self) -> Lease:
        name = new_owner_id(self._process)
        lease = self._database.transact(
            lambda c: acquire(c, FLOW_WORKER, name, name, self._seconds)
        )
        assert lease is not None, "the name is unique"
        self._heartbeat.keep(lease)
        return lease

    def _take_name(self) -> Lease | None:
        if not self._process:
            return None
        return self._database.transact(lambda c: take_name(c, self._process, self._seconds))

    def _retake_name(self) -> None:
        """Take the name again after its lease was lost, unless another worker has it."""
        try:
            self._name_lease = self._take_name()
        except NameTaken as error:
            log.warning("%s continues without its name: %s", self.name, error)
        else:
            if self._name_lease is not None:
                self._heartbeat.keep(self._name_lease)

    def _release_name(self) -> None:
        if self._name_lease is None:
            return
        try:
            self._heartbeat.release(self._name_lease)
        except Exception as error:  # noqa: BLE001  a lease that is not renewed expires anyway
            log.warning("could not release the name %s; it will expire: %s", self._process, error)

    def _sweep(self) -> None:
        self._database.transact(sweep_flows)
        self._database.transact(sweep_pipelines)
        if monotonic() - self._removed_at > REMOVE_EVERY:
            self._removed_at = monotonic()
            while self._clock.trusts_age(RETENTION) and self._remove_closed():
                pass  # there may be more than one transaction removes

    def _remove_closed(self) -> int:
        return self._database.transact(lambda c: remove_closed_flows(c, RETENTION))

    def _give_up_lease(self, owners: Collection[str], error: BaseException) -> None:
        """Outcomes cannot be committed: expire the lease, so that other workers redo the tasks.

        Does nothing if the lease that the outcomes belong to is gone.
        """
        if self.name not in owners:
            return
        log.warning("%s gives up its lease and registers again: %s", self.name, error)
        self._try_to_release(self._heartbeat.expire)
        self._claiming.run_now()

    def _on_lost(self, lease: Lease) -> None:
        if lease.kind == NAME:
            log.warning("%s has lost the lease of its name %s", self.name, lease.key)
            return
        log.warning("%s has lost its lease; other workers redo its tasks", lease.owner)
        self._in_flight.cancel("the lease of its worker has expired")
        self._claiming.run_now()

    # ── claims ──

    def _claim_all(self) -> None:
        if self._lease not in self._heartbeat.held:
            self._in_flight.cancel("the lease of its worker has expired")
            self._lease = self._register()
            self._retake_name()
        self._in_flight.check(self.name, self.grace)
        while sum(self._claim(request) for request in self._requests()):
            pass  # there may be more

    def _claim(self, request: ClaimRequest) -> int:
        claims = self._database.transact(
            lambda c: flow_tasks.claim(c, self.name, request.by_queue, request.total)
        )
        if claims:
            crash_point("flow.claim.after_commit")
            self._in_flight.start([self._task_of(claim) for claim in claims])
        return len(claims)

    def _requests(self) -> list[ClaimRequest]:
        """What to claim: one task per idle thread, and more of short ones."""
        if self._is_draining or self._lease not in self._heartbeat.held:
            return []
        self._queues.rotate()  # so that no queue always comes last
        counts = self._in_flight.counts()
        free = {queue: self._free(queue, counts) for queue in self._queues}
        generators = frozenset(queue for queue in self._queues if self._is_generator(queue))
        handlers = {
            queue: number for queue, number in counts.by_queue.items() if queue not in generators
        }
        running = sum(counts.by_queue.values()) - sum(handlers.values())
        facts = ClaimFacts(
            counts.threads, handlers, self._durations.by_queue, free, generators, counts.stuck
        )
        return claim_requests(facts, counts.generator_threads - running)

    def _free(self, queue: str, counts: InFlightCounts) -> int | None:
        """How many more tasks of a queue its `concurrency` allows; None: no limit."""
        part = self._parts[queue]
        function = part.handler if part.handler and queue.endswith("[]") else part.step
        limit = function.retry_options.concurrency
        running = counts.by_queue.get(queue, 0) + counts.abandoned.get(queue, 0)
        return None if limit is None else max(0, limit - running)

    def _is_generator(self, queue: str) -> bool:
        return _is_generator(queue, self._parts[queue])

    def _task_of(self, claim: Claim) -> InFlightTask:
        flow, _, _ = claim.queue.partition("/")
        context = TaskContext(self._database, self._flows[flow], claim, self._pipelines)
        return InFlightTask(context, self._is_generator(claim.queue))

    # ── execution ──

    def _execute(self, task: InFlightTask) -> None:
        task.start()
        outcome: TaskOutcome = TaskSettled(task.claim)
        try:
            outcome = self._executor.execute(task.context)
        except Exception as error:  # noqa: BLE001  the store was unavailable for too long
            self._give_up_lease({task.claim.owner}, error)
        self._durations.add(task.claim.queue, task.took(monotonic()))
        self._in_flight.settle(task, outcome)
        self._in_flight.end(task)

    def _on_settled(self, outcomes: Sequence[TaskOutcome]) -> None:
        self.done += self._in_flight.remove(outcomes)
        self._claiming.run_now()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _by_name(flows: Sequence[Flow]) -> dict[str, Definition]:
    """Raises `DuplicateName` for two flows of one name: a task knows its flow by name only."""
    found: dict[str, Flow] = {}
    for flow in flows:
        first = found.setdefault(flow.name, flow)
        if first is not flow:
            raise DuplicateName(flow.at, "flow", flow.name, first.at)
    return {name: flow.definition for name, flow in found.items()}


def _queues(flows: Sequence[Definition]) -> Iterator[tuple[str, StepDefinition]]:
    for flow in flows:
        for name, part in flow.steps.items():
            yield f"{flow.name}/{name}", part
            if part.item is not None:
                yield f"{flow.name}/{name}[]", part


def _is_generator(queue: str, part: StepDefinition) -> bool:
    return part.step.kind is StepKind.GENERATOR and not queue.endswith("[]")


@contextmanager
def flow_worker(
    database: Database,
    *flows: Flow,
    threads: int = THREADS,
    process: str = "",
    root: str | None = None,
) -> Iterator[FlowWorker]:
    """Run a worker for these flows in this process until the block is left.

    `root` is the folder of the deployment's files; steps that run pipelines need it.
    """
    with (
        Notifications(database) as notifications,
        FlowWorker(database, flows, notifications, threads, process=process, root=root) as worker,
    ):
        yield worker
