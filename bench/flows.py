"""Durable flows compared with DBOS and Procrastinate, on the same PostgreSQL in the same run.

    pip install tidegate[bench]                   # the peers; else only the floor
    python -m bench.flows                         # 100,000 children; the peers have fewer
    python -m bench.flows --quick

One parent has many children that do nothing; each is durable and retried separately. A rate is
children per second, from the parent's start until the waiting caller has all results. All
sides have the same number of worker processes and databases of one embedded server with its default
settings. The floor is PostgreSQL's own rate. Compare the ratios: other programs on the machine slow
all sides.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic, sleep, time

import psycopg

from bench._flows_floor import floor
from bench._flows_ours import Ours
from bench._flows_side import LOOK_EVERY, Rate, Side, fan_out, wait_until
from tidegate.flows.worker.worker import LEASE_SECONDS, SWEEPS_PER_LEASE
from tidegate.store import EmbeddedPostgres

PEERS = ("dbos", "procrastinate")
WARM_UP = 100
FIRSTS = 10
"""Parents with one child each."""
GOAL = 10
KILLED_AT, KILLED_OF, KILLED_SECONDS = 20, 100, 0.5
"""A worker is killed when so many are done, of so many that take so long."""
BOUND = 600.0


@dataclass(frozen=True, slots=True)
class Options:
    """The command-line options."""

    children: int
    few: int
    peer_children: int
    rounds: int
    workers: int
    lease: float
    killing: bool


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one side in one round."""

    rate: Rate
    first: float
    """Seconds from the start of the parent to the start of its first child."""
    peak: float
    """Megabytes of a worker."""


def main() -> None:
    """Measure and print."""
    options = _asked()
    with TemporaryDirectory() as folder, EmbeddedPostgres(Path(folder, "postgres")) as server:
        with ExitStack() as left:
            places = Places(server.url, Path(folder), options, left)
            _print(f"{options.workers} worker processes each; load of the machine {_load()}")
            ratios = [_round(places, options) for _ in range(options.rounds)]
            _say_goal([it for it in ratios if it is not None])
            _compare_memory(places.ours, options)
            if options.killing:
                _compare_killing(places, options)
        server.close()
        server.wait_stopped()


class Places:
    """The sides, each with its own database."""

    def __init__(self, url: str, folder: Path, options: Options, left: ExitStack) -> None:
        self._url = url
        self.ours = Ours(self._database("ours"), folder, options.lease)
        left.enter_context(closing(self.ours))
        self.floor = self._database("floor")
        self.peers: list[Side] = []
        for name in PEERS:
            if find_spec(name) is None:
                _print(f"{name} is not installed, and left out: pip install tidegate[bench]")
            else:
                found = _opened(name, self._database(name))
                self.peers += [left.enter_context(closing(side)) for side in found]

    @property
    def sides(self) -> list[Side]:
        """All of them, ours first."""
        return [self.ours, *self.peers]

    def _database(self, name: str) -> str:
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self._url.replace("/postgres?", f"/{name}?")


def _opened(peer: str, url: str) -> list[Side]:
    if peer == "dbos":
        from bench._flows_dbos import Dbos, DbosSteps

        return [Dbos(url), DbosSteps(url)]
    from bench._flows_procrastinate import Procrastinate

    return [Procrastinate(url)]


# --- rates -----------------------------------------------------------------------------------


def _round(places: Places, options: Options) -> float | None:
    """Every side, ours twice: the slower of its rates, divided by that of the fastest peer."""
    batched, alone = (
        floor(places.floor, options.children // by, at) for by, at in ((1, 100), (20, 1))
    )
    _print(f"PostgreSQL itself, batches of 100   {batched}")
    _print(f"PostgreSQL itself, one by one       {alone}")
    ours = _measured(places.ours, options.children, options.workers)
    _say_figures(places.ours, ours)
    _print(f"    {ours.rate.each_second / batched.each_second:.2f} × the floor in batches,"
         f" {ours.rate.each_second / alone.each_second:.1f} × one by one")  # fmt: skip
    peers = [_peer(side, options, ours) for side in places.peers]
    if not peers:
        return None
    again = _measured(places.ours, options.children, options.workers)
    _say_figures(places.ours, again)
    return min(ours.rate.each_second, again.rate.each_second) / max(peers)


def _peer(side: Side, options: Options, ours: Figures) -> float:
    """Children per second of a peer, in its fastest form."""
    found = _measured(side, options.peer_children, options.workers)
    _say_figures(side, found)
    times = ours.rate.each_second / found.rate.each_second
    _print(f"    Tidegate has {times:.1f} × as many children per second (goal ≥ {GOAL})")
    return found.rate.each_second


def _measured(side: Side, children: int, workers: int) -> Figures:
    with side.workers(workers) as supervisor:
        fan_out(side, WARM_UP)
        firsts = [_first(side) for _ in range(FIRSTS)]
        rate = fan_out(side, children)
        return Figures(rate, median(firsts), supervisor.peak)


def _first(side: Side) -> float:
    started = time()
    parent = side.begin(1)
    side.wait(parent)
    return side.first(parent) - started


def _say_figures(side: Side, found: Figures) -> None:
    _print(f"{side.name:<35} {found.rate}; first child after {1000 * found.first:,.0f} ms;"
         f" a worker has {found.peak:,.0f} MB")  # fmt: skip


def _say_goal(ratios: Sequence[float]) -> None:
    if ratios:
        _print(f"Tidegate against the faster peer: {median(ratios):.1f} × (goal ≥ {GOAL}), from"
             f" {min(ratios):.1f} to {max(ratios):.1f} in {len(ratios)} rounds")  # fmt: skip


# --- memory ----------------------------------------------------------------------------------


def _compare_memory(ours: Ours, options: Options) -> None:
    """Of fresh processes: a peak is never forgotten."""
    few, many = (_peak(ours, it, options.workers) for it in (options.few, options.children))
    _print(f"memory of a worker: {few:,.1f} MB with {options.few:,} children, {many:,.1f} MB with"
         f" {options.children:,}: {many / few:.2f} × (goal: flat)")  # fmt: skip


def _peak(ours: Ours, children: int, workers: int) -> float:
    with ours.workers(workers) as supervisor:
        fan_out(ours, children)
        return supervisor.peak


# --- a worker is killed ----------------------------------------------------------------------


def _compare_killing(places: Places, options: Options) -> None:
    bound = options.lease * (1 + 1 / SWEEPS_PER_LEASE)
    _print(f"a worker is killed with children in hand; the bound is {bound:.0f} s: a lease of"
         f" {options.lease:g} s, and the time between two sweeps")  # fmt: skip
    for side in (it for it in places.sides if it.spreads):
        with _killed(side, options) as parent:
            seconds, stuck = _after(side, parent, 2 * bound)
        message = f"all are done after {seconds:.1f} s" if not stuck else (
            f"{stuck} are not done, and nothing has moved for {2 * bound:.0f} s")  # fmt: skip
        _print(f"{side.name:<35} {message}")


@contextmanager
def _killed(side: Side, options: Options) -> Iterator[str]:
    """A parent, one of whose workers was just killed; the others go on."""
    with side.workers(max(2, options.workers)) as supervisor:
        fan_out(side, WARM_UP)
        parent = side.begin(KILLED_OF, KILLED_SECONDS)
        wait_until(lambda: side.done(parent) >= KILLED_AT, BOUND)
        supervisor.kill_one()
        yield parent


def _after(side: Side, parent: str, stillness: float) -> tuple[float, int]:
    """Seconds until all are done, or until nothing has moved for so long; and how many are not."""
    started = moved = monotonic()
    done = side.done(parent)
    while done < KILLED_OF and monotonic() - moved < stillness:
        sleep(LOOK_EVERY)
        before, done = done, side.done(parent)
        moved = monotonic() if done > before else moved
    return monotonic() - started, KILLED_OF - done


def _load() -> str:
    return ", ".join(f"{it:.1f}" for it in os.getloadavg())


def _print(what: str) -> None:
    print(what, flush=True)


def _asked() -> Options:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--children", type=int, default=100_000)
    parser.add_argument("--few", type=int, default=10_000, help="to compare memory with")
    parser.add_argument("--peer-children", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2, help="processes of each side")
    parser.add_argument("--lease", type=float, default=LEASE_SECONDS)
    parser.add_argument("--no-killing", dest="killing", action="store_false")
    parser.add_argument("--quick", action="store_true", help="small sizes, one round")
    given = vars(parser.parse_args(sys.argv[1:]))
    if given.pop("quick"):
        given |= {"children": 10_000, "few": 1_000, "peer_children": 500, "rounds": 1}
    return Options(**given)


if __name__ == "__main__":
    main()
