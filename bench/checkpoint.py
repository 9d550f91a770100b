"""The cost of checkpoints: the coffee pipeline with and without them, in turns, in one session.

    python -m bench.checkpoint                       # 2 M transactions in 80 chunks of CSV
    python -m bench.checkpoint --transactions 200000

Chunks arrive as fast as a run without checkpoints processes them. Throughput is measured from the
first chunk to the results. An unpublished checkpoint stores state only; a published one updates all
sinks.

An aligned checkpoint pauses a channel that has delivered its barrier until the last copy arrives;
an unaligned one pauses the whole run for the length of its transaction.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic, sleep

from tidegate.checkpoint import Checkpoints, CheckpointState
from tidegate.dataflow import CheckpointId
from tidegate.runtime.deployment import Deployment, open_deployment
from tidegate.runtime.ingestion.run_service import RunService
from tidegate.runtime.service import serve
from tidegate.spark import open_session
from tidegate.store.checkpoints import checkpoints as checkpoint_store
from tidegate.store.checkpoints import unaligned
from tidegate.store.checkpoints.checkpoints import Checkpoint
from tidegate_examples.coffee import pipeline
from tidegate_examples.coffee.data import Size, write

CORES = 2
SHARDS = 2
CHUNKS = 40
"""Files of each of the two large sources."""
EVERY = 5.0
"""Seconds between two checkpoints."""
PATIENCE = 1.0
"""Seconds after which a checkpoint becomes unaligned."""
CONFIGURATIONS = {
    "published checkpoint": Checkpoints(every=EVERY, retained=99),
    "unpublished checkpoint": Checkpoints(every=EVERY, publish=600.0, retained=99),
    "checkpoint, unaligned after 1 s": Checkpoints(
        every=EVERY, unaligned_after=PATIENCE, retained=99
    ),
    "unaligned checkpoint": Checkpoints(every=EVERY, unaligned_after=0.0, retained=99),
}
"""Configurations whose throughput is compared with a run without checkpoints."""
LARGE, SMALL = 10, 1
"""Multiples of the state, for costs by its size."""
BOUND = 600.0


@dataclass(frozen=True)
class Options:
    """The command-line options."""

    transactions: int
    rounds: int


class Bench:
    """Runs of the coffee pipeline, one after the other."""

    def __init__(self, server: RunService, deployment: Deployment) -> None:
        self._server = server
        self._deployment = deployment
        self._numbers = count(1)
        self._further = count(1)

    def begin(self, checkpoints: Checkpoints | None = None) -> str:
        """Open a run."""
        name = f"run {next(self._numbers)}"
        self._server.begin(name, checkpoints=checkpoints)
        return name

    def whole(
        self, folder: Path, checkpoints: Checkpoints | None, seconds: float
    ) -> tuple[float, str]:
        """Deliver all chunks over some time and wait for the results; returns the seconds."""
        run, started = self.begin(checkpoints), monotonic()
        files = [*_files(folder)]
        with ThreadPoolExecutor(CORES) as pool:
            waiting = []
            for deployment, (source, number, file) in enumerate(files):
                sleep(max(0.0, started + seconds * deployment / len(files) - monotonic()))
                waiting.append(pool.submit(self._server.deliver, run, source, number, str(file)))
            for each in waiting:
                each.result()
        self._server.end(run)
        self._server.wait(run, BOUND)
        return monotonic() - started, run

    def deliver(self, run: str, folder: Path, times: int, at: int = 0) -> None:
        """Deliver all files repeatedly, as further chunks."""
        for turn in range(times):
            for source, number, file in _files(folder):
                behind = at + turn * sum(1 for it in _files(folder) if it[0] == source)
                self._server.deliver(run, source, behind + number, str(file))

    def wait_processed(self, run: str) -> None:
        """Wait until all delivered chunks are part of the state."""
        self.checkpoint(run, unpublished=True)

    def add_and_checkpoint(self, run: str, folder: Path) -> float:
        """Deliver one more chunk of each source and take an unpublished checkpoint."""
        self.deliver(run, folder, 1, at=next(self._further) * 1000)
        return self.checkpoint(run, unpublished=True)

    def unaligned(self, run: str) -> tuple[float, float]:
        """Take an unaligned checkpoint: seconds until it is committed, and of the run's pause."""
        started = monotonic()
        known, database = self._server.known(run), self._deployment.database
        trigger = partial(
            checkpoint_store.trigger, run=known, id=CheckpointId.new(), alignment_timeout=BOUND
        )
        number = database.transact(trigger)
        assert number is not None, "no other checkpoint is under way"
        paused = monotonic()
        database.transact(lambda c: unaligned.unalign(c, known, number))
        paused = monotonic() - paused
        self._await(run, number)
        return monotonic() - started, paused

    def checkpoint(self, run: str, *, unpublished: bool) -> float:
        """Take a checkpoint; returns the seconds."""
        started = monotonic()
        known = self._server.known(run)
        database = self._deployment.database
        number = database.transact(
            lambda c: checkpoint_store.trigger(
                c, known, CheckpointId.new(), unpublished=unpublished
            )
        )
        assert number is not None, "no other checkpoint is under way"
        self._await(run, number)
        return monotonic() - started

    def restore(self, run: str) -> float:
        """Restore the last checkpoint and take another; returns the seconds."""
        started = monotonic()
        self._server.restore(run)
        self.checkpoint(run, unpublished=True)
        return monotonic() - started

    def checkpoints_of(self, run: str) -> list[Checkpoint]:
        """The committed checkpoints of a run."""
        every = self._server.checkpoints.all(run)
        return [it for it in every if it.state is CheckpointState.COMMITTED]

    def cancel(self, run: str) -> None:
        """Cancel a run."""
        self._server.cancel(run)

    def _await(self, run: str, number: int) -> None:
        while number not in [it.number for it in self.checkpoints_of(run)]:
            sleep(0.005)


def main() -> None:
    """Measure and print."""
    options = _asked()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="tidegate-bench-")))
        session = open_session(f"local[{CORES}]", settings={"spark.driver.memory": "4g"})
        stack.callback(session.stop)
        deployment = stack.enter_context(open_deployment(folder / "deployment"))
        service = stack.enter_context(serve(deployment, pipeline, session, SHARDS))
        bench = Bench(service.server, deployment)
        data = _generated(folder / "data", options.transactions, CHUNKS)
        _throughput(options, bench, data)
        little = _generated(folder / "small", options.transactions // 40, 2)
        _snapshots(options, bench, little)
        _pauses(options, bench, little)


def _throughput(options: Options, bench: Bench, data: Path) -> None:
    _print("warming up")
    bench.whole(data, None, 0.0)
    seconds, _ = bench.whole(data, None, 0.0)
    without: list[float] = []
    with_checkpoints: dict[str, list[float]] = {
        configuration: [] for configuration in CONFIGURATIONS
    }
    taken: dict[str, list[Checkpoint]] = {configuration: [] for configuration in CONFIGURATIONS}
    for number in range(options.rounds):
        without.append(bench.whole(data, None, seconds)[0])
        for configuration, checkpoints in CONFIGURATIONS.items():
            duration, run = bench.whole(data, checkpoints, seconds)
            with_checkpoints[configuration].append(duration)
            taken[configuration] += bench.checkpoints_of(run)
        every = ", ".join(
            f"{took[-1]:.1f} s with {configuration}"
            for configuration, took in with_checkpoints.items()
        )
        _print(f"round {number + 1}: {without[-1]:.1f} s without checkpoints, {every}")
    for configuration, took in with_checkpoints.items():
        title = f"throughput, {configuration} every {EVERY:g} s"
        _ratio(title, without, took, "without checkpoints", "≥ 0.9")
        _print(f"    {_described(taken[configuration], sum(took))}")


def _described(taken: Sequence[Checkpoint], seconds: float) -> str:
    if not taken:
        return "none was committed before the end"
    durations, waits = [it.seconds for it in taken], [it.waited for it in taken]
    return (
        f"{len(taken)} in {seconds:.0f} s, {sum(it.is_published for it in taken)} published;"
        f" {median(durations):.2f} s each (median), {max(durations):.2f} s at most;"
        f" a channel was paused {median(waits):.2f} s, {max(waits):.2f} s at most"
    )


def _snapshots(options: Options, bench: Bench, data: Path) -> None:
    """On small and large state, with nothing or a little added."""
    nothing: dict[int, list[float]] = {}
    little: dict[int, list[float]] = {}
    shows: dict[int, list[float]] = {}
    restores: dict[int, list[float]] = {}
    for times in (SMALL, LARGE):
        run = bench.begin(Checkpoints(retained=3))
        bench.deliver(run, data, times)
        bench.wait_processed(run)
        nothing[times] = [
            bench.checkpoint(run, unpublished=True) for _ in range(options.rounds * 3)
        ]
        little[times] = [bench.add_and_checkpoint(run, data) for _ in range(options.rounds)]
        bench.checkpoint(run, unpublished=False)  # the first published one computes everything
        shows[times] = [bench.checkpoint(run, unpublished=False) for _ in range(options.rounds)]
        restores[times] = [bench.restore(run) for _ in range(options.rounds)]
        bench.cancel(run)
    for title, costs in {
        "unpublished, nothing added": nothing,
        "unpublished, a little added": little,
        "published, nothing changed": shows,
        "restore": restores,
    }.items():
        _ratio(f"{title}, ten times the state", costs[LARGE], costs[SMALL], "once the state", "")


def _pauses(options: Options, bench: Bench, data: Path) -> None:
    """Unaligned checkpoints with all chunks in flight."""
    run = bench.begin(Checkpoints(retained=3))
    bench.deliver(run, data, LARGE)
    every = [bench.unaligned(run) for _ in range(options.rounds * 3)]
    took, paused = [seconds for seconds, _ in every], [1000 * pause for _, pause in every]
    _print(f"unaligned, all chunks in flight: {median(took):.3f} s each (median), of which the run"
         f" is paused {median(paused):.1f} ms, {max(paused):.1f} ms at most")  # fmt: skip
    bench.cancel(run)


def _ratio(title: str, ours: Sequence[float], peers: Sequence[float], peer: str, goal: str) -> None:
    ratio = median(ours) / median(peers)
    aim = f"goal {goal}; " if goal else ""
    _print(f"{title:<44} {ratio:5.2f} × {peer:<16} ({aim}{median(ours):.2f} s and"
         f" {median(peers):.2f} s)")  # fmt: skip


def _generated(folder: Path, transactions: int, files: int) -> Path:
    _print(f"generating {transactions:,} transactions")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as elsewhere:
        elsewhere.submit(write, folder, Size(transactions, files=files), 1).result()
    return folder


def _files(folder: Path) -> Iterator[tuple[str, int, Path]]:
    """Each file with its source and number, the first of every source first."""
    every = [
        (source, number, file)
        for source in pipeline.sources
        for number, file in enumerate(sorted((folder / source).iterdir()), 1)
    ]
    return iter(sorted(every, key=lambda it: (it[1], it[0])))


def _print(what: str) -> None:
    print(what, flush=True)


def _asked() -> Options:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--transactions", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    return Options(**vars(parser.parse_args(sys.argv[1:])))


if __name__ == "__main__":
    main()
