"""A worker takes tasks of a pipeline under leases and runs each in a task loop on its own thread.

Several workers share the tasks of a pipeline evenly (`assignment`). A worker with too many tasks
hands some over: it reads no more messages for them, commits the work in progress and gives their
leases back, so no work is repeated.

When a task fails, its processor and channels are discarded and rebuilt from the committed state. A
task whose lease was lost is closed: another worker owns it. A run whose messages break a rule fails
with the first cause, and the other runs go on. If a task fails repeatedly without progress of the
same run, the worker gives up and reports the error.

A worker has a lease of its own under its owner id, which is part of the paths of the files that it
writes. When this lease is lost, the sweeper may have removed files of unfinished work, so the
worker closes all its tasks and registers under another owner id. A second lease, its registration,
makes it a candidate for tasks. A draining worker gives it back first; so does a worker that cannot
start tasks, until it can, so that others get them.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from threading import Condition, Lock, Thread
from threading import Event as Flag
from time import monotonic
from typing import TYPE_CHECKING, Protocol, Self

from tidegate.backoff import Backoff
from tidegate.errors import Fenced, SparkLost
from tidegate.runtime.periodic import PeriodicTask
from tidegate.runtime.task.task_attempt import FailureCounter, TaskAttempt
from tidegate.runtime.task.task_loop import Ownership, TaskLoop
from tidegate.runtime.task_graph import ProcessorFactory
from tidegate.runtime.worker import assignment
from tidegate.runtime.worker.failure_classification import is_bad_input, is_transient, runs_to_fail
from tidegate.runtime.worker.owner_id import new_owner_id
from tidegate.runtime.worker.worker_losses import log_losses, take
from tidegate.settings import DEFAULTS, Settings
from tidegate.store import (
    Lease,
    LeaseKeeper,
    RunFailure,
    acquire,
    fail_runs,
    forget_below,
    guard,
    holders,
    holders_below,
    number_of,
    registrations_topic,
    task_topic,
)
from tidegate.store.runs.worker_losses import drop_isolations

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tidegate.runtime.task_graph import TaskGraph
    from tidegate.store import Connection, Database, FileChecksum, Notifications

log = logging.getLogger(__name__)

REBALANCES_PER_LEASE = 6
"""How often within the time of a lease a worker looks for free tasks."""
LONGEST_PAUSE = 10
"""The longest pause before the restart of a task, as a multiple of the first."""
JOIN_BOUND = 30.0
REBALANCE_BOUND = 10.0
"""Seconds of it that a closing worker waits for a rebalance in progress."""
TASK = "task"
WORKER = "worker"
SEPARATOR = ","
"""Between the parts of a registration's key: the owner id, and the stages it can run."""
REGISTRATION = "registration"
"""The kind of lease that a worker holds while it is a candidate for tasks."""


class WriterFactory(ProcessorFactory, Protocol):
    """A processor factory whose processors write files under an owner id."""

    def write_as(self, writer: str) -> None:
        """Write files under this owner id from now on."""
        ...

    def checksum(self, files: Sequence[str]) -> Sequence[FileChecksum]:
        """The checksums of files that a checkpoint refers to."""
        ...

    def learn(self, task: str, suspects: Mapping[int, int]) -> None:
        """Process these runs alone in a task; by run the worker losses it has caused."""
        ...

    @property
    def loss(self) -> str | None:
        """How Spark has ended; None while it runs."""
        ...


@dataclass
class _Running:
    """A task that this worker runs."""

    task: str
    lease: Lease
    own: Lease
    """The worker's own lease when the task was started."""
    loop: TaskLoop
    thread: Thread


class Worker:
    """Runs its share of the tasks of one pipeline.

        with Worker(database, task_graph, factory, notifications) as worker: …

    Its name is an owner id that begins with the name of its process. With `stages` it runs only
    the tasks of these stages.
    """

    def __init__(
        self,
        database: Database,
        task_graph: TaskGraph,
        factory: WriterFactory,
        notifications: Notifications,
        settings: Settings = DEFAULTS,
        *,
        stages: Sequence[str] = (),
        process: str = "",
    ) -> None:
        self._settings = settings
        first = settings.task_restart_seconds
        self._restarts = Backoff(first=first, longest=LONGEST_PAUSE * first, jitter=0.0)
        self._stages = tuple(stages)
        self._process = process
        self._factory = factory
        self._database = database
        self._notifications = notifications
        self._task_graph = task_graph
        self._gave_up: BaseException | None = None
        self._failures: dict[str, FailureCounter] = defaultdict(
            partial(FailureCounter, settings.task_stable_seconds)
        )
        self._running: dict[str, _Running] = {}
        self._lock = Lock()
        self._given_back = Condition(self._lock)
        self._is_draining = False
        self.unattended: tuple[str, ...] = ()
        """The tasks that no registered worker can run, as of the last rebalance."""
        self._closed = Flag()
        self._leases = LeaseKeeper(database, self._on_lost)
        self._own = self._register_owner()
        self._rebalancing = PeriodicTask(
            "tidegate-worker",
            self._rebalance,
            settings.lease_seconds / REBALANCES_PER_LEASE,
            on_repeated_failure=lambda: self._release_lease(self._registration),
        )
        self._unsubscribe = notifications.subscribe(
            registrations_topic(task_graph.name), self._rebalancing.run_now
        )

    @property
    def name(self) -> str:
        """The present owner id."""
        return self._own.owner

    @property
    def error(self) -> BaseException | None:
        """Why the worker has given up, if it has."""
        return self._gave_up or self._rebalancing.error

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that it runs now."""
        with self._lock:
            return tuple(self._running)

    def drain(self, timeout: float) -> bool:
        """Hand over all tasks; whether that was done in time. Close the worker afterwards.

        Spark jobs in progress are waited for and committed, so that no work is repeated.
        """
        self._is_draining = True
        deadline = monotonic() + timeout
        self._release_lease(self._registration)
        self._rebalancing.run_now()
        with self._lock:
            self._finish(self._running)
            while self._running and (remaining := deadline - monotonic()) > 0:
                self._given_back.wait(remaining)
                self._finish(self._running)  # one may have been taken since
            return not self._running

    def close(self) -> None:
        """Finish the steps in progress, give all tasks back, and stop.

        Spark jobs that run beyond their step are not waited for: their outcome is dropped, and the
        next owner of the task repeats them.
        """
        self._closed.set()
        deadline = monotonic() + JOIN_BOUND
        self._unsubscribe()
        self._rebalancing.close(REBALANCE_BOUND)
        while (alive := self._alive()) and monotonic() < deadline:
            for each in alive:
                each.loop.close()
            for each in alive:
                each.thread.join(max(0.0, deadline - monotonic()))
        if not self._is_draining:
            self._release_lease(self._registration)
        self._release_lease(self._own)
        self._leases.close()

    def _alive(self) -> list[_Running]:
        with self._lock:
            return [each for each in self._running.values() if each.thread.is_alive()]

    def _register_owner(self) -> Lease:
        name = new_owner_id(self._process)
        lease = self._acquire(WORKER, name, name)
        assert lease is not None, "owner ids are unique"
        self._factory.write_as(name)
        self._leases.keep(lease)
        if not self._is_draining:
            self._register(name)
        return lease

    def _register(self, name: str) -> None:
        self._database.transact(lambda c: forget_below(c, REGISTRATION, self._registrations))
        registration = self._acquire(
            REGISTRATION, self._registrations + SEPARATOR.join((name, *self._stages)), name
        )
        assert registration is not None, "owner ids are unique"
        self._registration = registration
        self._leases.keep(registration)

    def _check_can_start(self) -> None:
        """Raise if this worker cannot build a processor."""
        able = self._able(self._stages)
        task = next(task for task in self._task_graph.tasks if able is None or task in able)
        self._task_graph.processor(task, self._factory)

    @property
    def _registrations(self) -> str:
        """The prefix of the keys of all registrations for this pipeline."""
        return task_topic(self._task_graph.name, "")

    def _acquire(self, kind: str, key: str, owner: str) -> Lease | None:
        return self._database.transact(
            lambda c: acquire(c, kind, key, owner, self._settings.lease_seconds)
        )

    def _register_again(self) -> None:
        """Register under another owner id; nothing is committed under the lost lease any more."""
        self._close_tasks(self._own)
        self._leases.release(self._registration)
        self._leases.release(self._own)
        earlier = self.name
        self._database.transact(lambda c: drop_isolations(c, earlier))
        self._own = self._register_owner()

    # ── assignment ──

    def _rebalance(self) -> None:
        if self._closed.is_set():
            return
        held = self._leases.held
        if self._own not in held:
            self._register_again()
        elif self._registration not in held and not self._is_draining:
            self._check_can_start()
            self._register(self.name)
        moves = self._database.transact(self._moves)
        with self._lock:
            self._finish(moves.hand_over)
        for task in moves.take:
            if self._closed.is_set() or self._is_draining:
                return
            self._take(task_topic(self._task_graph.name, task), task)

    def _moves(self, connection: Connection) -> assignment.Moves:
        keys = {task: task_topic(self._task_graph.name, task) for task in self._task_graph.tasks}
        held = holders(connection, TASK, keys.values())
        registrations = holders_below(connection, REGISTRATION, self._registrations)
        able = {name: self._able(key.split(SEPARATOR)[1:]) for key, name in registrations.items()}
        self.unattended = assignment.unattended(able, keys)
        return assignment.decide(
            self.name, able, {task: held.get(key) for task, key in keys.items()}
        )

    def _able(self, stages: Sequence[str]) -> Collection[str] | None:
        """The tasks of these stages; None, for all tasks, without stages."""
        return self._task_graph.tasks_of(stages) if stages else None

    def _finish(self, tasks: Iterable[str]) -> None:
        """Hand tasks over as soon as their work in progress is committed."""
        for task in tasks:
            if task in self._running:
                self._running[task].loop.finish()

    def _take(self, key: str, task: str) -> None:
        if task in self.tasks:
            return  # its lease was lost, and its loop has not ended yet
        wanted = Lease(TASK, key, self.name, 0, self._settings.lease_seconds)
        pipeline, most = self._task_graph.name, self._settings.run_losses
        taken = self._database.transact(lambda c: take(c, pipeline, task, wanted, most))
        if taken is None:
            return
        self._leases.keep(taken.lease)
        log_losses(task, taken, most)
        self._factory.learn(task, taken.isolated_runs)
        try:
            self._start(task, taken.lease)
        except BaseException:
            self._release_lease(taken.lease)
            raise

    def _start(self, task: str, lease: Lease, *, single_message: bool = False) -> None:
        """Run a task with a new processor and loop on a new thread."""
        own = self._own
        loop = TaskLoop(
            self._database,
            self._task_graph.name,
            self._task_graph.processor(task, self._factory),
            self._task_graph.edges,
            Ownership(lease, (own,)),
            self._task_graph.monitored,
            self._factory.checksum,
            attempt=TaskAttempt(single_message=single_message),
        )
        thread = Thread(target=partial(self._work, task), name=f"tidegate-{task}", daemon=True)
        running = _Running(task, lease, own, loop, thread)
        with self._lock:
            thread.start()
            self._running[task] = running
        if self._closed.is_set() or self._is_lost(running):
            loop.close()  # it was not in `_running` yet when the worker closed its tasks
        elif self._is_draining:
            loop.finish()

    # ── running a task ──

    def _work(self, task: str) -> None:
        with self._lock:
            running = self._running[task]
        unsubscribe = self._notifications.subscribe(running.lease.key, running.loop.wake)
        failure: BaseException | None = None
        try:
            running.loop.run()
        except BaseException as error:  # noqa: BLE001  a thread that ended must not seem alive
            failure = error
        finally:
            unsubscribe()
        try:
            self._conclude(running, failure)
        except Exception as error:  # noqa: BLE001  another worker has to be able to take the task
            log.warning("worker %s gives up task %s: %s", self.name, task, error)
            self._give_back(running)

    def _conclude(self, running: _Running, error: BaseException | None) -> None:
        """Restart a task whose loop has failed, or give it back."""
        is_lost = isinstance(error, Fenced) or self._is_lost(running)
        if error is not None and not (self._closed.is_set() or is_lost):
            self._recover(running, error)
            return
        if error is not None:
            log.info("worker %s gives up task %s: %s", self.name, running.task, error)
        self._give_back(running)

    def _is_lost(self, running: _Running) -> bool:
        held = self._leases.held
        return running.lease not in held or running.own not in held

    def _give_back(self, running: _Running) -> None:
        self._release_lease(running.lease)
        with self._lock:
            self._running.pop(running.task, None)
            self._given_back.notify_all()

    def _release_lease(self, lease: Lease) -> None:
        """Release a lease if possible; in any case it is no longer renewed.

        After the loss of Spark a task's lease is expired instead: that shows the loss.
        """
        is_lost = lease.kind == TASK and self._factory.loss is not None
        leave = self._leases.expire if is_lost else self._leases.release
        try:
            leave(lease, [registrations_topic(self._task_graph.name)])
        except Exception as error:  # noqa: BLE001  the other leases are released as well
            log.warning(
                "could not release %s lease %s; it will expire: %s", lease.kind, lease.key, error
            )

    def _recover(self, running: _Running, error: BaseException) -> None:
        """Restart a task from the committed state, unless it has failed too often."""
        if (loss := self._factory.loss) is not None:
            self._end_at_once(running, SparkLost(loss))
            return
        log.warning("restarting task %s after failure: %s", running.task, error)
        is_handled = self._fail_runs(running, error) or is_transient(error)
        failures = 0 if is_handled else self._failures[running.task].count(running.loop.attempt)
        if failures > self._settings.task_failures:
            self._gave_up = error
            self._closed.set()
        pause = self._restarts.pause(max(1, failures))
        if self._closed.wait(pause) or self._is_lost(running):
            self._give_back(running)
        else:
            single_message = is_bad_input(error) and not is_handled
            self._start(running.task, running.lease, single_message=single_message)

    def _end_at_once(self, running: _Running, loss: SparkLost) -> None:
        """Close a worker that has lost Spark, so that others take its tasks soon."""
        if self._gave_up is None:
            log.error("worker %s ends: %s", self.name, loss)
        self._gave_up = loss
        self._closed.set()
        self._give_back(running)

    def _fail_runs(self, running: _Running, error: BaseException) -> bool:
        """Fail the runs that would make the task fail again; whether there are any."""
        failed = [RunFailure(number_of(run), str(error)) for run in runs_to_fail(error)]

        def fail(connection: Connection) -> None:
            guard(connection, running.lease, running.own)
            fail_runs(connection, failed)

        if failed:
            self._database.transact(fail)
        return bool(failed)

    def _on_lost(self, lease: Lease) -> None:
        """Called by the lease keeper."""
        log.warning("worker %s has lost its %s lease %s", self.name, lease.kind, lease.key)
        self._close_tasks(lease)

    def _close_tasks(self, lost: Lease) -> None:
        """Close the task of a lost lease, or all tasks if it is the worker's own."""
        with self._lock:
            running = [
                each
                for each in self._running.values()
                if lost.kind == WORKER or each.lease.key == lost.key
            ]
        for each in running:
            each.loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
