"""The desk of a stage: where the steps of its tasks become Spark jobs.

Tasks hand in shares and wait for what becomes of each. A large share is a job of its own. Small
ones that come together, of several shards and runs, become one joint job: while a job is at work
the next ones gather, so that the busier a stage is the more they share, and nobody waits when it
is idle. A joint job that fails is tried again run by run, so that only the guilty run fails.

An order can be withdrawn (`cancel` of its answer) until a job has taken it. Who hands in the same
share again does so because the task was built anew, so the earlier order is withdrawn.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event, Lock
from time import monotonic, sleep
from typing import TYPE_CHECKING, TypeAlias

from tidegate.errors import StageFailed
from tidegate.spark import is_in_the_data

if TYPE_CHECKING:
    from tidegate.dataflow import Batch
    from tidegate.spark import JobInput

LARGE_IN_FLIGHT = 2
SMALL_IN_FLIGHT = 2
"""Jobs of one stage at a time. Small ones never wait for large ones."""
ALONE = 16 << 20
ALONE_ROWS = 500_000
"""Bytes or rows from which a share is a job of its own; below, the job costs more than the data."""
TOGETHER = 64 << 20
"""Bytes that a joint job takes at most."""
MOST_SHARES = 128
GATHERING = 0.004
"""Seconds that a joint job waits for the other shards, which are woken by the same commit."""
ATTEMPTS = 3
PAUSE = 0.5
"""Seconds before a failed job is tried again, growing with each attempt."""

ShardOutputs: TypeAlias = "dict[int | None, Batch]"
"""What a share gave: a batch for each shard of its reader, or one under None."""
Perform: TypeAlias = "Callable[[Sequence[JobInput]], Sequence[ShardOutputs]]"


@dataclass(slots=True)
class Work:
    """What a stage has done so far."""

    jobs: int = 0
    rows: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Order:
    """A share that somebody waits for."""

    share: JobInput
    bytes: int
    answer: Future[ShardOutputs]

    @property
    def whose(self) -> tuple[int, int]:
        return self.share.run, self.share.shard


class JobBatcher:
    """Takes the shares of one stage. `perform` runs one Spark job.

    `prefer` is called on every thread that runs small jobs, before its first. Shares of suspects
    are jobs of their own.
    """

    def __init__(
        self,
        stage: str,
        perform: Perform,
        prefer: Callable[[], None] = lambda: None,
        is_suspect: Callable[[JobInput], bool] = lambda _: False,
    ) -> None:
        self._perform = perform
        self._is_suspect = is_suspect
        self._large_jobs = ThreadPoolExecutor(LARGE_IN_FLIGHT, f"tidegate-{stage}-large-jobs")
        self._small_jobs = ThreadPoolExecutor(
            SMALL_IN_FLIGHT, f"tidegate-{stage}-small-jobs", initializer=prefer
        )
        self._small: list[_Order] = []
        self._changing = Lock()
        self._closed = Event()
        self.work = Work()

    def submit(self, share: JobInput) -> Future[ShardOutputs]:
        """Hand in a share; its answer comes with the job that takes it."""
        order = _Order(share, _bytes(share), Future())
        if order.bytes >= ALONE or share.rows >= ALONE_ROWS or self._is_suspect(share):
            self._large_jobs.submit(self._take, [order])
            return order.answer
        with self._changing:
            for earlier in self._small:
                if earlier.whose == order.whose:
                    earlier.answer.cancel()
            self._small.append(order)
        self._small_jobs.submit(self._answer_together)
        return order.answer

    def close(self) -> None:
        """Take no more; jobs at work are not waited for, and not tried again."""
        self._closed.set()
        for jobs in (self._large_jobs, self._small_jobs):
            jobs.shutdown(wait=False, cancel_futures=True)

    def _answer_together(self) -> None:
        """One joint job over what has gathered; often an earlier one has taken it all."""
        sleep(GATHERING)
        with self._changing:
            orders = _that_fit(self._small)
            del self._small[: len(orders)]
        self._take(orders)

    def _take(self, orders: Sequence[_Order]) -> None:
        """Answer those that nobody has withdrawn."""
        wanted = [order for order in orders if order.answer.set_running_or_notify_cancel()]
        if wanted and not self._closed.is_set():
            self._answer(wanted)

    def _answer(self, orders: Sequence[_Order]) -> None:
        try:
            self._answer_jointly(orders)
        except BaseException as error:  # noqa: BLE001  whoever waits has to hear of it
            for order in orders:
                if not order.answer.done():
                    order.answer.set_exception(error)

    def _answer_jointly(self, orders: Sequence[_Order]) -> None:
        by_run = _by_run(orders)
        if len(by_run) == 1:
            self._answer_run(orders)
            return
        try:
            made = self._job(orders)
        except StageFailed:
            if self._closed.is_set():
                raise
            for its_orders in by_run.values():
                self._answer_run(its_orders)
        else:
            _give(orders, made)

    def _answer_run(self, orders: Sequence[_Order]) -> None:
        try:
            _give(orders, self._persist(orders))
        except StageFailed as failure:
            for order in orders:
                order.answer.set_exception(failure)

    def _persist(self, orders: Sequence[_Order]) -> Sequence[ShardOutputs]:
        """Try again what may succeed without anybody changing anything."""
        for attempt in range(1, ATTEMPTS):
            try:
                return self._job(orders)
            except StageFailed as failure:
                if is_in_the_data(failure.__cause__) or paused(PAUSE * attempt, self._closed):
                    raise
        return self._job(orders)

    def _job(self, orders: Sequence[_Order]) -> Sequence[ShardOutputs]:
        started = monotonic()
        made = self._perform([order.share for order in orders])
        with self._changing:
            self.work.jobs += 1
            self.work.rows += sum(batch.rows for its in made for batch in its.values())
            self.work.seconds += monotonic() - started
        return made


def paused(seconds: float, closed: Event) -> bool:
    """Let some time pass; whether the desk was closed meanwhile."""
    return closed.wait(seconds)


def _bytes(share: JobInput) -> int:
    return sum(batch.bytes for batches in share.inputs for batch in batches)


def _that_fit(orders: Sequence[_Order]) -> list[_Order]:
    """The first few that make one job; at least one."""
    return list(_fitting(orders))


def _fitting(orders: Sequence[_Order]) -> Iterator[_Order]:
    room = TOGETHER
    for order in orders[:MOST_SHARES]:
        if room <= 0:
            return
        room -= order.bytes
        yield order


def _by_run(orders: Sequence[_Order]) -> dict[int, list[_Order]]:
    runs: dict[int, list[_Order]] = defaultdict(list)
    for order in orders:
        runs[order.share.run].append(order)
    return runs


def _give(orders: Sequence[_Order], made: Sequence[ShardOutputs]) -> None:
    for order, its in zip(orders, made, strict=True):
        order.answer.set_result(its)
