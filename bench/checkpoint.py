"""What cutting costs: the coffee pipeline with cuts and without, in turns, in one session.

    python -m bench.checkpoint                       # 2 M transactions in 80 chunks of CSV
    python -m bench.checkpoint --transactions 200000

Chunks arrive over some time, as fast as a run without cuts takes them. Throughput is measured from
the first chunk to the results. A snapshot is a quiet checkpoint, which keeps states and publishes
nothing; a cut shows all sinks. One that waits no longer than a second is unaligned after that.

What a cut pauses is a channel that has brought its barrier, until the last copy is there; one that
is unaligned pauses the whole run, for as long as its transaction takes.
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
"""Seconds between two cuts."""
PATIENCE = 1.0
"""Seconds that a cut waits for barriers, where it does not wait for all."""
WAYS = {
    "a cut": Checkpoints(every=EVERY, retained=99),
    "a snapshot": Checkpoints(every=EVERY, publish=600.0, retained=99),
    "a cut, unaligned after 1 s": Checkpoints(every=EVERY, unaligned_after=PATIENCE, retained=99),
    "an unaligned one": Checkpoints(every=EVERY, unaligned_after=0.0, retained=99),
}
"""How runs are cut whose throughput is compared with that of one that is not."""
LARGE, SMALL = 10, 1
"""How many times the state, where costs are compared by its size."""
BOUND = 600.0


@dataclass(frozen=True)
class Asked:
    """What the command line asks for."""

    transactions: int
    rounds: int


class Bench:
    """Runs of the coffee pipeline, one after the other."""

    def __init__(self, server: RunService, place: Deployment) -> None:
        self._server = server
        self._place = place
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
        """Deliver everything, spread over some time, and wait for the results: how long it took."""
        run, started = self.begin(checkpoints), monotonic()
        files = [*_files(folder)]
        with ThreadPoolExecutor(CORES) as pool:
            waiting = []
            for place, (source, number, file) in enumerate(files):
                sleep(max(0.0, started + seconds * place / len(files) - monotonic()))
                waiting.append(pool.submit(self._server.deliver, run, source, number, str(file)))
            for each in waiting:
                each.result()
        self._server.end(run)
        self._server.wait(run, BOUND)
        return monotonic() - started, run

    def deliver(self, run: str, folder: Path, times: int, at: int = 0) -> None:
        """All files, again and again, as further chunks."""
        for turn in range(times):
            for source, number, file in _files(folder):
                behind = at + turn * sum(1 for it in _files(folder) if it[0] == source)
                self._server.deliver(run, source, behind + number, str(file))

    def settled(self, run: str) -> None:
        """Wait until everything that was delivered is part of the state."""
        self.checkpoint(run, unpublished=True)

    def with_a_little_more(self, run: str, folder: Path) -> float:
        """Take a snapshot of one more chunk of each source, however much there is already."""
        self.deliver(run, folder, 1, at=next(self._further) * 1000)
        return self.checkpoint(run, unpublished=True)

    def unaligned(self, run: str) -> tuple[float, float]:
        """Take one that waits for nobody: seconds until it is there, and of them the run paused."""
        started = monotonic()
        known, database = self._server.known(run), self._place.database
        trigger = partial(
            checkpoint_store.trigger, run=known, id=CheckpointId.new(), alignment_timeout=BOUND
        )
        number = database.transact(trigger)
        assert number is not None, "nobody else cuts this run"
        paused = monotonic()
        database.transact(lambda c: unaligned.unalign(c, known, number))
        paused = monotonic() - paused
        self._await(run, number)
        return monotonic() - started, paused

    def checkpoint(self, run: str, *, unpublished: bool) -> float:
        """Take one; how long it took."""
        started = monotonic()
        known = self._server.known(run)
        database = self._place.database
        number = database.transact(
            lambda c: checkpoint_store.trigger(
                c, known, CheckpointId.new(), unpublished=unpublished
            )
        )
        assert number is not None, "nobody else cuts this run"
        self._await(run, number)
        return monotonic() - started

    def restored(self, run: str) -> float:
        """Go back to the last cut, until the run is cut again from there."""
        started = monotonic()
        self._server.restore(run)
        self.checkpoint(run, unpublished=True)
        return monotonic() - started

    def checkpoints_of(self, run: str) -> list[Checkpoint]:
        """The cuts of a run."""
        every = self._server.checkpoints.all(run)
        return [it for it in every if it.state is CheckpointState.COMMITTED]

    def give_up(self, run: str) -> None:
        """Cancel a run."""
        self._server.cancel(run)

    def _await(self, run: str, number: int) -> None:
        while number not in [it.number for it in self.checkpoints_of(run)]:
            sleep(0.005)


def main() -> None:
    """Measure and print."""
    asked = _asked()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="tidegate-bench-")))
        session = open_session(f"local[{CORES}]", settings={"spark.driver.memory": "4g"})
        stack.callback(session.stop)
        place = stack.enter_context(open_deployment(folder / "deployment"))
        service = stack.enter_context(serve(place, pipeline, session, SHARDS))
        bench = Bench(service.server, place)
        data = _generated(folder / "data", asked.transactions, CHUNKS)
        _throughput(asked, bench, data)
        little = _generated(folder / "small", asked.transactions // 40, 2)
        _snapshots(asked, bench, little)
        _pauses(asked, bench, little)


def _throughput(asked: Asked, bench: Bench, data: Path) -> None:
    _say("warming up")
    bench.whole(data, None, 0.0)
    seconds, _ = bench.whole(data, None, 0.0)
    without: list[float] = []
    with_checkpoints: dict[str, list[float]] = {way: [] for way in WAYS}
    taken: dict[str, list[Checkpoint]] = {way: [] for way in WAYS}
    for number in range(asked.rounds):
        without.append(bench.whole(data, None, seconds)[0])
        for way, checkpoints in WAYS.items():
            its, run = bench.whole(data, checkpoints, seconds)
            with_checkpoints[way].append(its)
            taken[way] += bench.checkpoints_of(run)
        every = ", ".join(f"{took[-1]:.1f} s with {way}" for way, took in with_checkpoints.items())
        _say(f"round {number + 1}: {without[-1]:.1f} s without cuts, {every}")
    for way, took in with_checkpoints.items():
        title = f"throughput, {way} every {EVERY:g} s"
        _ratio(title, without, took, "without cuts", "≥ 0.9")
        _say(f"    {_described(taken[way], sum(took))}")


def _described(taken: Sequence[Checkpoint], seconds: float) -> str:
    if not taken:
        return "none was there before the end"
    durations, waits = [it.seconds for it in taken], [it.waited for it in taken]
    return (
        f"{len(taken)} in {seconds:.0f} s, {sum(it.is_published for it in taken)} of them shown;"
        f" {median(durations):.2f} s each (median), {max(durations):.2f} s at most;"
        f" a channel was paused {median(waits):.2f} s, {max(waits):.2f} s at most"
    )


def _snapshots(asked: Asked, bench: Bench, data: Path) -> None:
    """On a small and on a large state, to which nothing is added meanwhile, or a little."""
    nothing: dict[int, list[float]] = {}
    little: dict[int, list[float]] = {}
    shows: dict[int, list[float]] = {}
    restores: dict[int, list[float]] = {}
    for times in (SMALL, LARGE):
        run = bench.begin(Checkpoints(retained=3))
        bench.deliver(run, data, times)
        bench.settled(run)
        nothing[times] = [bench.checkpoint(run, unpublished=True) for _ in range(asked.rounds * 3)]
        little[times] = [bench.with_a_little_more(run, data) for _ in range(asked.rounds)]
        bench.checkpoint(run, unpublished=False)  # the first that is shown computes everything
        shows[times] = [bench.checkpoint(run, unpublished=False) for _ in range(asked.rounds)]
        restores[times] = [bench.restored(run) for _ in range(asked.rounds)]
        bench.give_up(run)
    for title, costs in {
        "snapshot, nothing added": nothing,
        "snapshot, a little added": little,
        "unchanged cut": shows,
        "restore": restores,
    }.items():
        _ratio(f"{title}, ten times the state", costs[LARGE], costs[SMALL], "once the state", "")


def _pauses(asked: Asked, bench: Bench, data: Path) -> None:
    """Ones that wait for nobody, while as much is on its way as there is."""
    run = bench.begin(Checkpoints(retained=3))
    bench.deliver(run, data, LARGE)
    every = [bench.unaligned(run) for _ in range(asked.rounds * 3)]
    took, paused = [seconds for seconds, _ in every], [1000 * pause for _, pause in every]
    _say(f"unaligned, all chunks on their way: {median(took):.3f} s each (median), of which the run"
         f" is paused {median(paused):.1f} ms, {max(paused):.1f} ms at most")  # fmt: skip
    bench.give_up(run)


def _ratio(title: str, ours: Sequence[float], peers: Sequence[float], peer: str, goal: str) -> None:
    ratio = median(ours) / median(peers)
    aim = f"goal {goal}; " if goal else ""
    _say(f"{title:<44} {ratio:5.2f} × {peer:<16} ({aim}{median(ours):.2f} s and"
         f" {median(peers):.2f} s)")  # fmt: skip


def _generated(folder: Path, transactions: int, files: int) -> Path:
    _say(f"generating {transactions:,} transactions")
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


def _say(what: str) -> None:
    print(what, flush=True)


def _asked() -> Asked:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--transactions", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    return Asked(**vars(parser.parse_args(sys.argv[1:])))


if __name__ == "__main__":
    main()
