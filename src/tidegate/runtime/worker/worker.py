"""A worker: takes tasks of a pipeline under leases and runs each in a step loop of its own.

Several workers share the tasks of a pipeline evenly (`balance`). One that has too many hands some
over: it reads no more for them, commits what is at work, and gives their leases back, so nothing is
done twice.

Whatever goes wrong in a task, its processor and channels are thrown away and built anew from what
is committed. A task whose lease was lost belongs to somebody else and is let go; one that nobody
holds is taken. A run that a processor cannot handle fails, with the first cause, and the others go
on. A task that dies with the same run again and again is the end of the worker, which says so.

A worker has a lease of its own, under a name that also stands in the paths of what it writes. When
that is lost, the sweeper may have taken the worker for dead and removed what it was writing, so it
lets everything go and begins another life, under another name. A second lease is its seat among
those who share: a worker that drains gives that back first, and so does one that cannot start what
it takes, until it can, lest it keep tasks from those who could.
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

from tidegate.errors import Fenced, SparkLost
from tidegate.runtime.periodic import PeriodicTask
from tidegate.runtime.task.task_attempt import FailureCounter, TaskAttempt
from tidegate.runtime.task.task_loop import Ownership, TaskLoop
from tidegate.runtime.task_graph import ProcessorFactory
from tidegate.runtime.worker import assignment
from tidegate.runtime.worker.failure_classification import is_bad_input, is_transient, runs_to_fail
from tidegate.runtime.worker.owner_id import new_owner_id
from tidegate.runtime.worker.worker_losses import MOST_LOSSES, log_losses, take
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

LEASE_SECONDS = 6.0
LOOKS_PER_LEASE = 6
"""How often within the time of a lease a worker looks for tasks that nobody holds."""
REBUILD_PAUSE = 0.5
"""Seconds before a task is built anew, for each time that it died for nothing."""
LONGEST_REBUILD_PAUSE = 5.0
MOST_DEATHS = 12
"""A task that dies with a run more often, without bringing it further, is not going to live."""
JOIN_BOUND = 30.0
LOOK_BOUND = 10.0
"""Seconds of it that a closing worker waits for its last look for tasks."""
TASK = "task"
WORKER = "worker"
SEPARATOR = ","
"""Between the parts of a seat's key: whose it is, and the stages that it is for."""
SEAT = "registration"
"""The kind of lease that a worker holds while it shares the tasks of a pipeline with others."""


class WriterFactory(ProcessorFactory, Protocol):
    """A workshop that writes, and has to know under which name."""

    def write_as(self, writer: str) -> None:
        """From here on write under this name."""
        ...

    def checksum(self, files: Sequence[str]) -> Sequence[FileChecksum]:
        """How files are recognised that a checkpoint names."""
        ...

    def learn(self, task: str, suspects: Mapping[int, int]) -> None:
        """Process these runs alone in a task, each with the workers that it has cost."""
        ...

    @property
    def loss(self) -> str | None:
        """How the engine of all tasks has ended; None while it runs."""
        ...


@dataclass
class _Running:
    """A task that this worker runs."""

    task: str
    lease: Lease
    own: Lease
    """The worker's own lease at that time."""
    loop: TaskLoop
    thread: Thread


class Worker:
    """Runs the tasks of one pipeline that nobody else has.

        with Worker(database, assembly, workshop, wakeups) as worker: …

    Its name is unique to each of its lives, and begins with what its process is called. Of
    several, `stages` may say which tasks it takes.
    """

    def __init__(  # noqa: PLR0913  all but four have defaults
        self,
        database: Database,
        task_graph: TaskGraph,
        factory: WriterFactory,
        notifications: Notifications,
        *,
        seconds: float = LEASE_SECONDS,
        stages: Sequence[str] = (),
        process: str = "",
        most_losses: int = MOST_LOSSES,
    ) -> None:
        self._most_losses = most_losses
        self._stages = tuple(stages)
        self._process = process
        self._factory = factory
        self._database = database
        self._notifications = notifications
        self._task_graph = task_graph
        self._seconds = seconds
        self._gave_up: BaseException | None = None
        self._deaths: dict[str, FailureCounter] = defaultdict(FailureCounter)
        self._running: dict[str, _Running] = {}
        self._changing = Lock()
        self._given_back = Condition(self._changing)
        self._is_draining = False
        self.unattended: tuple[str, ...] = ()
        """The tasks that no worker is there for, at its last look."""
        self._closed = Flag()
        self._heartbeat = LeaseKeeper(database, self._on_lost)
        self._own = self._begin_life()
        self._looking = PeriodicTask(
            "tidegate-worker",
            self._look,
            seconds / LOOKS_PER_LEASE,
            on_repeated_failure=lambda: self._try_to_give_back(self._registration),
        )
        self._unsubscribe = notifications.subscribe(
            registrations_topic(task_graph.name), self._looking.run_now
        )

    @property
    def name(self) -> str:
        """Of this life of it."""
        return self._own.owner

    @property
    def error(self) -> BaseException | None:
        """What keeps it, or one of its tasks, from living; the worker has given up then."""
        return self._gave_up or self._looking.error

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that it runs at this moment."""
        with self._changing:
            return tuple(self._running)

    def drain(self, timeout: float) -> bool:
        """Hand every task over to the others; whether all were, in time.

        Work that goes on behind its step is waited for and committed, so that nobody does it again.
        Close the worker afterwards.
        """
        self._is_draining = True
        deadline = monotonic() + timeout
        self._try_to_give_back(self._registration)
        self._looking.run_now()
        with self._changing:
            self._finish(self._running)
            while self._running and (remaining := deadline - monotonic()) > 0:
                self._given_back.wait(remaining)
                self._finish(self._running)  # one may have been taken meanwhile
            return not self._running

    def close(self) -> None:
        """Finish the steps at work, give every task back, and stop.

        A Spark job that goes on behind its step is not waited for: its outcome is dropped, and
        whoever has the task next does it again.
        """
        self._closed.set()
        deadline = monotonic() + JOIN_BOUND
        self._unsubscribe()
        self._looking.close(LOOK_BOUND)
        while (alive := self._alive()) and monotonic() < deadline:
            for each in alive:
                each.loop.close()
            for each in alive:
                each.thread.join(max(0.0, deadline - monotonic()))
        if not self._is_draining:
            self._try_to_give_back(self._registration)
        self._try_to_give_back(self._own)
        self._heartbeat.close()

    def _alive(self) -> list[_Running]:
        with self._changing:
            return [each for each in self._running.values() if each.thread.is_alive()]

    def _begin_life(self) -> Lease:
        name = new_owner_id(self._process)
        lease = self._acquire(WORKER, name, name)
        assert lease is not None, "nobody else has this name"
        self._factory.write_as(name)
        self._heartbeat.keep(lease)
        if not self._is_draining:
            self._sit_down(name)
        return lease

    def _sit_down(self, name: str) -> None:
        self._database.transact(lambda c: forget_below(c, SEAT, self._registrations))
        registration = self._acquire(
            SEAT, self._registrations + SEPARATOR.join((name, *self._stages)), name
        )
        assert registration is not None, "nobody else has this name"
        self._registration = registration
        self._heartbeat.keep(registration)

    def _try_out(self) -> None:
        """Raise what would keep this worker from starting a task."""
        able = self._able(self._stages)
        task = next(it for it in self._task_graph.tasks if able is None or it in able)
        self._task_graph.processor(task, self._factory)

    @property
    def _registrations(self) -> str:
        """How the keys of all seats of this pipeline begin."""
        return task_topic(self._task_graph.name, "")

    def _acquire(self, kind: str, key: str, owner: str) -> Lease | None:
        return self._database.transact(lambda c: acquire(c, kind, key, owner, self._seconds))

    def _begin_another_life(self) -> None:
        """First end this one: nothing may be committed under its lease any more."""
        self._let_go(self._own)
        self._heartbeat.release(self._registration)
        self._heartbeat.release(self._own)
        earlier = self.name
        self._database.transact(lambda c: drop_isolations(c, earlier))
        self._own = self._begin_life()

    # ── taking tasks ──

    def _look(self) -> None:
        if self._closed.is_set():
            return
        held = self._heartbeat.held
        if self._own not in held:
            self._begin_another_life()
        elif self._registration not in held and not self._is_draining:
            self._try_out()
            self._sit_down(self.name)
        moves = self._database.transact(self._moves)
        with self._changing:
            self._finish(moves.hand_over)
        for task in moves.take:
            if self._closed.is_set() or self._is_draining:
                return
            self._take(task_topic(self._task_graph.name, task), task)

    def _moves(self, connection: Connection) -> assignment.Moves:
        keys = {task: task_topic(self._task_graph.name, task) for task in self._task_graph.tasks}
        held = holders(connection, TASK, keys.values())
        registrations = holders_below(connection, SEAT, self._registrations)
        able = {name: self._able(key.split(SEPARATOR)[1:]) for key, name in registrations.items()}
        self.unattended = assignment.unattended(able, keys)
        return assignment.decide(
            self.name, able, {task: held.get(key) for task, key in keys.items()}
        )

    def _able(self, stages: Sequence[str]) -> Collection[str] | None:
        """The tasks of somebody who runs these stages; of no stages in particular, all."""
        return self._task_graph.tasks_of(stages) if stages else None

    def _finish(self, tasks: Iterable[str]) -> None:
        """Hand these over as soon as what is at work for them is committed."""
        for task in tasks:
            if task in self._running:
                self._running[task].loop.finish()

    def _take(self, key: str, task: str) -> None:
        if task in self.tasks:
            return  # lost, and its loop has not heard of it
        wanted = Lease(TASK, key, self.name, 0, self._seconds)
        pipeline, most = self._task_graph.name, self._most_losses
        taken = self._database.transact(lambda c: take(c, pipeline, task, wanted, most))
        if taken is None:
            return
        self._heartbeat.keep(taken.lease)
        log_losses(task, taken, most)
        self._factory.learn(task, taken.isolated_runs)
        try:
            self._start(task, taken.lease)
        except BaseException:
            self._try_to_give_back(taken.lease)
            raise

    def _start(self, task: str, lease: Lease, *, single_message: bool = False) -> None:
        """Run a new processor in a new loop, on a thread of its own."""
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
        with self._changing:
            thread.start()
            self._running[task] = running
        if self._closed.is_set() or self._is_lost(running):
            loop.close()  # whoever closes what is running may have looked before it was
        elif self._is_draining:
            loop.finish()

    # ── running one ──

    def _work(self, task: str) -> None:
        with self._changing:
            running = self._running[task]
        unsubscribe = self._notifications.subscribe(running.lease.key, running.loop.wake)
        trouble: BaseException | None = None
        try:
            running.loop.run()
        except BaseException as error:  # noqa: BLE001  a dead thread must never look alive
            trouble = error
        finally:
            unsubscribe()
        try:
            self._conclude(running, trouble)
        except Exception as error:  # noqa: BLE001  somebody has to be able to take the task
            log.warning("worker %s lets %s go: %s", self.name, task, error)
            self._give_back(running)

    def _conclude(self, running: _Running, trouble: BaseException | None) -> None:
        """What becomes of a task whose loop has ended."""
        is_lost = isinstance(trouble, Fenced) or self._is_lost(running)
        if trouble is not None and not (self._closed.is_set() or is_lost):
            self._recover(running, trouble)
            return
        if trouble is not None:
            log.info("worker %s lets %s go: %s", self.name, running.task, trouble)
        self._give_back(running)

    def _is_lost(self, running: _Running) -> bool:
        held = self._heartbeat.held
        return running.lease not in held or running.own not in held

    def _give_back(self, running: _Running) -> None:
        self._try_to_give_back(running.lease)
        with self._changing:
            self._running.pop(running.task, None)
            self._given_back.notify_all()

    def _try_to_give_back(self, lease: Lease) -> None:
        """At once if that is possible; it is not renewed any more in any case.

        The task of a lost worker is not given back: the expired lease shows the loss.
        """
        is_lost = lease.kind == TASK and self._factory.loss is not None
        leave = self._heartbeat.expire if is_lost else self._heartbeat.release
        try:
            leave(lease, [registrations_topic(self._task_graph.name)])
        except Exception as trouble:  # noqa: BLE001  others have to be given back as well
            log.warning("%s %s is left to its lease: %s", lease.kind, lease.key, trouble)

    def _recover(self, running: _Running, trouble: BaseException) -> None:
        """Begin again from what is committed, unless that has been tried too often."""
        if (loss := self._factory.loss) is not None:
            self._end_at_once(running, SparkLost(loss))
            return
        log.warning("task %s is built anew after: %s", running.task, trouble)
        is_dealt_with = self._fail_runs(running, trouble) or is_transient(trouble)
        deaths = 0 if is_dealt_with else self._deaths[running.task].count(running.loop.attempt)
        if deaths > MOST_DEATHS:
            self._gave_up = trouble
            self._closed.set()
        pause = min(REBUILD_PAUSE * max(1, deaths), LONGEST_REBUILD_PAUSE)
        if self._closed.wait(pause) or self._is_lost(running):
            self._give_back(running)
        else:
            single_message = is_bad_input(trouble) and not is_dealt_with
            self._start(running.task, running.lease, single_message=single_message)

    def _end_at_once(self, running: _Running, loss: SparkLost) -> None:
        """Close this worker without Spark, so that other workers take its tasks soon."""
        if self._gave_up is None:
            log.error("worker %s ends: %s", self.name, loss)
        self._gave_up = loss
        self._closed.set()
        self._give_back(running)

    def _fail_runs(self, running: _Running, trouble: BaseException) -> bool:
        """Runs that a processor could not handle would fail it again and again; if there are."""
        failed = [RunFailure(number_of(run), str(trouble)) for run in runs_to_fail(trouble)]

        def fail(connection: Connection) -> None:
            guard(connection, running.lease, running.own)
            fail_runs(connection, failed)

        if failed:
            self._database.transact(fail)
        return bool(failed)

    def _on_lost(self, lease: Lease) -> None:
        """Called by the heartbeat."""
        log.warning("worker %s has lost %s %s", self.name, lease.kind, lease.key)
        self._let_go(lease)

    def _let_go(self, lost: Lease) -> None:
        """End the task that was run under a lease, or all of them if it is the worker's own."""
        with self._changing:
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
