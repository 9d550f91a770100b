"""Barriers between processes, against `multiprocessing.Barrier` and Spark's barrier tasks.

    python -m bench.group
    python -m bench.group --rounds 2000 --no-spark

Every process calls a barrier again and again; a figure is the time of one call, over the calls of
one of the processes. Members and the coordinator are processes of their own on one machine. Prints
medians, 99th percentiles and ratios; below 1 is quicker than the peer. Then a member is killed, and
another one frozen, in the middle of a round: how long until the others can name it.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from statistics import median
from time import monotonic, perf_counter, sleep
from typing import Any

from tidegate.group import (
    INBOUND,
    OUTBOUND,
    PROCESSING,
    Coordinator,
    Failure,
    Group,
    Require,
    new_secret,
)

SIZES = (2, 4, 8)
WARM_UP = 50
SPARK_ROUNDS = 3
SILENCE = 2.0
"""Seconds after which the coordinator removes a frozen member here; 10 by default."""
FORMS = {
    "rendezvous": Require.NOTHING,
    "delivery fence": INBOUND,
    "outbound": OUTBOUND,
    "processing fence": INBOUND | PROCESSING,
}
PROCESSES = get_context("spawn")


@dataclass(frozen=True)
class Figures:
    """The calls of one process, in seconds."""

    calls: Sequence[float]

    @property
    def middle(self) -> float:
        return median(self.calls)

    @property
    def late(self) -> float:
        """The 99th percentile."""
        return sorted(self.calls)[int(len(self.calls) * 0.99)]

    def __str__(self) -> str:
        return f"median {1000 * self.middle:8.3f} ms   p99 {1000 * self.late:8.3f} ms"


@dataclass(frozen=True)
class GroupAddress:
    """Address and secret of a group."""

    address: str
    secret: bytes


def main() -> None:
    """Measure and print."""
    asked = _asked()
    for size in SIZES:
        peer = _peer(size, asked.rounds)
        _say(f"{size} processes, multiprocessing.Barrier      {peer}")
        for form, require in FORMS.items():
            _compare(form, _ours(size, asked.rounds, require), size, peer)
        if asked.spark:
            _compare_spark(size, _ours(size, asked.rounds, Require.NOTHING))
    for name, stop in (("killed", signal.SIGKILL), ("frozen", signal.SIGSTOP)):
        seconds, what = _seconds_until_named(stop)
        _say(f"a member is {name} in a round: named to the others as {what} after {seconds:.2f} s")


def _compare(form: str, ours: Figures, size: int, peer: Figures) -> None:
    goal = ", goal ≤ 2 for 8" if form == "rendezvous" else ""
    _say(
        f"{size} processes, {form:<28} {ours}   {ours.middle / peer.middle:5.2f} × the peer{goal};"
        f" p99 {ours.late / ours.middle:.1f} × the median (goal < 10)"
    )


def _compare_spark(size: int, ours: Figures) -> None:
    spark = _spark(size)
    times = spark.middle / ours.middle
    _say(f"{size} tasks,     BarrierTaskContext.barrier() {spark}"
         f"   {times:,.0f} × a rendezvous (goal ≥ 500)")  # fmt: skip


def _say(what: str) -> None:
    print(what, flush=True)


# --- the peers -------------------------------------------------------------------------------


def _peer(size: int, rounds: int) -> Figures:
    barrier = PROCESSES.Barrier(size)
    return _measured([(_meet_peer, (barrier, rounds))] * size)


def _meet_peer(barrier: Barrier, rounds: int, results: SimpleQueue[list[float]]) -> None:
    results.put(_timed(lambda: barrier.wait(60), rounds))


def _spark(size: int) -> Figures:
    from tidegate.spark import open_session

    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = open_session(f"local[{size}]")
    try:
        rows = session.range(size, numPartitions=size)
        found = rows.mapInArrow(_meet_in_spark, "seconds double", barrier=True).collect()
        return Figures([row.seconds for row in found])
    finally:
        session.stop()


def _meet_in_spark(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa
    from pyspark import BarrierTaskContext

    list(batches)
    context = BarrierTaskContext.get()
    context.barrier()
    seconds = _timed(context.barrier, SPARK_ROUNDS, warm_up=0)
    yield pa.RecordBatch.from_pydict({"seconds": seconds})


# --- ours ------------------------------------------------------------------------------------


def _ours(size: int, rounds: int, require: Require) -> Figures:
    with _coordinated() as group_address:
        names = [f"member {number}" for number in range(size)]
        return _measured([(_meet, (group_address, name, names, require, rounds)) for name in names])


def _meet(
    group_address: GroupAddress,
    name: str,
    names: Sequence[str],
    require: Require,
    rounds: int,
    results: SimpleQueue[list[float]],
) -> None:
    with Group.join(name, address=group_address.address, secret=group_address.secret) as group:
        group.wait_for(names)
        seconds = _timed(lambda: group.barrier("it", require=require).raise_for_status(), rounds)
        results.put(seconds)
        group.rendezvous("the end")


class _coordinated:  # noqa: N801  reads as a word in a with statement
    """A coordinator in a separate process."""

    def __init__(self, silence: float = 10.0) -> None:
        self._addresses: SimpleQueue[GroupAddress] = PROCESSES.SimpleQueue()
        self._process = PROCESSES.Process(target=_coordinate, args=(self._addresses, silence))

    def __enter__(self) -> GroupAddress:
        self._process.start()
        return self._addresses.get()

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.join()


def _coordinate(results: SimpleQueue[GroupAddress], silence: float) -> None:
    secret = new_secret()
    with Coordinator(
        "tcp://127.0.0.1:0", secret=secret, heartbeat=0.2, silence=silence
    ) as coordinator:
        results.put(GroupAddress(coordinator.address, secret))
        while True:
            sleep(60)


def _seconds_until_named(stop: signal.Signals) -> tuple[float, Failure]:
    """Seconds from the signal to the completion, and the failure."""
    results: SimpleQueue[float] = PROCESSES.SimpleQueue()
    with _coordinated(SILENCE) as group_address:
        idle = PROCESSES.Process(target=_join_and_idle, args=(group_address, results))
        idle.start()
        results.get()
        with Group.join(
            "waiting", address=group_address.address, secret=group_address.secret
        ) as group:
            group.wait_for(["idle"])
            signaller = PROCESSES.Process(target=_signal, args=(idle.pid, stop, results))
            signaller.start()
            completion = group.rendezvous("it")
            named_at = monotonic()
        seconds = named_at - results.get()
        signaller.join()
        idle.kill()
        idle.join()
    return seconds, completion.rendezvous.failure


def _join_and_idle(group_address: GroupAddress, results: SimpleQueue[float]) -> None:
    with Group.join("idle", address=group_address.address, secret=group_address.secret):
        results.put(0.0)
        sleep(600)


def _signal(pid: int, stop: signal.Signals, results: SimpleQueue[float]) -> None:
    sleep(0.5)  # the others are waiting by then
    results.put(monotonic())
    os.kill(pid, stop)


# --- measuring -------------------------------------------------------------------------------


def _measured(work: Sequence[tuple[Callable[..., None], tuple[Any, ...]]]) -> Figures:
    """Run each in a separate process; the figures of the first result."""
    results: SimpleQueue[list[float]] = PROCESSES.SimpleQueue()
    processes = [
        PROCESSES.Process(target=target, args=(*arguments, results)) for target, arguments in work
    ]
    for process in processes:
        process.start()
    seconds = [results.get() for _ in processes]
    for process in processes:
        process.join()
    return Figures(seconds[0])


def _timed(call: Callable[[], object], rounds: int, warm_up: int = WARM_UP) -> list[float]:
    for _ in range(warm_up):
        call()
    seconds = []
    for _ in range(rounds):
        started = perf_counter()
        call()
        seconds.append(perf_counter() - started)
    return seconds


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=1_000)
    parser.add_argument("--no-spark", dest="spark", action="store_false")
    return parser.parse_args(sys.argv[1:])


if __name__ == "__main__":
    main()
