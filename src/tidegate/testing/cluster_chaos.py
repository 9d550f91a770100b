"""The processes of a deployment die and freeze while clients wait for their results.

`tidegate up` runs a server, monitors and workers; `tidegate submit --wait` is a client. Meanwhile
one of them after the other is killed, or frozen for longer than its leases last, and PostgreSQL is
killed. Every client must get the bytes that it gets without faults, each sink must
have been published once, and nobody may be stuck.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep

from tidegate.errors import ChaosFailed
from tidegate.runtime.cluster.discovery import find
from tidegate.runtime.cluster.peer import GroupPeer
from tidegate.runtime.monitor.monitor import MONITOR
from tidegate.store import EmbeddedPostgres, holders_below, open_database
from tidegate.testing.run_chaos import Trial, publications_of, results_in, why_not_once

BOUND = 900.0
"""Seconds for all clients to have their results, whatever dies."""
START_BOUND = 240.0
FROZEN = 10.0
"""Seconds for which a process is frozen: longer than its leases last."""
BETWEEN = (2.0, 8.0)
"""Seconds between two faults."""
MOST_WAVES = 10
"""How often the clients come, at most, until each kind of fault has hit somebody."""
FAULTS = (
    "kill a worker",
    "freeze a worker",
    "kill the leader",
    "kill PostgreSQL",
    "kill the server",
    "freeze the leader",
)
ALONE = "without faults, each client alone"
NAME = "chaos"


@dataclass(frozen=True, slots=True)
class Client:
    """Somebody with data."""

    name: str
    data: Path


@dataclass
class ChaosCluster:
    """A deployment of several processes, and where its clients get their results."""

    pipeline: str
    folder: Path
    workers: int = 2
    monitors: int = 2
    shards: int = 2
    spark: str = "local[1]"
    url: str = field(default_factory=lambda: f"127.0.0.1:{_free_port()}")
    say: Callable[[str], None] = lambda _: None
    """Tells whoever watches what befalls it, when it does."""

    @property
    def deployment(self) -> Path:
        """Its folder."""
        return self.folder / "deployment"

    @contextmanager
    def up(self) -> Iterator[GroupPeer]:
        """Start it, join its group, and stop it afterwards."""
        command = ["up", self.pipeline, "--deployment", str(self.deployment)]
        command += ["--workers", str(self.workers), "--monitors", str(self.monitors)]
        command += ["--shards", str(self.shards), "--spark", self.spark, "--listen", self.url]
        process = _start(command, self.folder / "up.log")
        try:
            yield self._joined(process)
        finally:
            process.terminate()
            try:
                process.wait(BOUND)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def submit(self, client: Client) -> subprocess.Popen[bytes]:
        """Send a client's data and wait for its results."""
        command = ["submit", self.pipeline, "--run", client.name, "--data", str(client.data)]
        command += ["--out", str(self.folder / client.name / "out"), "--wait"]
        command += ["--server", f"http://{self.url}", "--patience", str(BOUND)]
        return _start(command, self.folder / f"{client.name}.log")

    def results(self, client: Client) -> dict[str, bytes]:
        """What a client got."""
        return results_in(self.folder / client.name)

    def _joined(self, process: subprocess.Popen[bytes]) -> GroupPeer:
        until = monotonic() + START_BOUND
        wanted = {f"worker-{n + 1}" for n in range(self.workers)} | {"server"}
        while monotonic() < until and process.poll() is None:
            place = find(self.deployment)
            if place is not None:
                peer = GroupPeer.join(NAME, place)
                peer.group.wait_for(wanted, until - monotonic())
                return peer
            sleep(0.1)
        said = (self.folder / "up.log").read_text(errors="replace")[-2000:]
        raise ChaosFailed("none", f"the deployment did not come up: {said}")


def chaos_of_processes(
    company: ChaosCluster, clients: Sequence[Client], seed: int
) -> Iterator[Trial]:
    """Without faults first, each client alone; then all of them at once while processes die.

    They come again, each time with another run, until every kind of fault has hit somebody.
    """
    began = monotonic()
    expected = {client.name: _alone(company, client) for client in clients}
    yield Trial(ALONE, 0, monotonic() - began)
    chance = random.Random(seed)  # noqa: S311  faults are no secrets
    left = chance.sample(FAULTS, len(FAULTS))
    with company.up() as peer:
        for wave in range(1, MOST_WAVES + 1):
            started = monotonic()
            its = [Client(f"{client.name}-{wave}", client.data) for client in clients]
            at_work = [company.submit(client) for client in its]
            faults = list(_torment(company, peer, at_work, left, chance))
            wanted = {
                it.name: expected[client.name] for it, client in zip(its, clients, strict=True)
            }
            _check(company, its, wanted, at_work)
            deaths = sum(fault.startswith("kill") for fault in faults)
            yield Trial(", ".join(faults) or "none", deaths, monotonic() - started)
            if not left:
                break
        peer.leave()
    if left:
        raise ChaosFailed("processes", f"nobody was hit by: {', '.join(left)}")


def _alone(company: ChaosCluster, client: Client) -> dict[str, bytes]:
    """What one process gives for a client."""
    place = company.folder / "alone" / client.name
    command = ["run", company.pipeline, "--data", str(client.data), "--out", str(place / "out")]
    command += ["--shards", str(company.shards), "--spark", company.spark]
    process = _start(command, place / "log")
    if process.wait(BOUND) != 0:
        said = (place / "log").read_text(errors="replace")[-2000:]
        raise ChaosFailed("none", f"the run without faults failed: {said}")
    return results_in(place)


def _torment(
    company: ChaosCluster,
    peer: GroupPeer,
    at_work: Sequence[subprocess.Popen[bytes]],
    left: list[str],
    chance: random.Random,
) -> Iterator[str]:
    """One fault of those left after the other, while somebody waits for results."""
    until = monotonic() + BOUND
    while left and not _is_over(at_work, chance.uniform(*BETWEEN)):
        if _befall(company, peer, left[0], chance):
            yield left.pop(0)
        else:
            left.append(left.pop(0))  # nobody is there at the moment
    if not _is_over(at_work, until - monotonic()):
        for process in at_work:
            process.kill()
        raise ChaosFailed("processes", f"somebody is stuck after {BOUND:g} s")


def _is_over(at_work: Sequence[subprocess.Popen[bytes]], seconds: float) -> bool:
    """Whether nobody waits for results any more, after some time."""
    until = monotonic() + seconds
    for process in at_work:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, until - monotonic()))
    return all(process.poll() is not None for process in at_work)


def _befall(company: ChaosCluster, peer: GroupPeer, fault: str, chance: random.Random) -> bool:
    """Whether somebody was hit."""
    action, _, kind = fault.partition(" ")
    pid = _victim(company, peer, kind.split(" ")[-1], chance)
    is_hit = _hit(pid, signal.SIGKILL if action == "kill" else signal.SIGSTOP)
    if is_hit:
        company.say(f"{fault} (pid {pid})")
    if action == "freeze":
        sleep(FROZEN)
        _hit(pid, signal.SIGCONT)
    return is_hit


def _victim(company: ChaosCluster, peer: GroupPeer, kind: str, chance: random.Random) -> int | None:
    if kind == "PostgreSQL":
        return EmbeddedPostgres(company.deployment / "postgres").pid
    if kind == "leader":
        return _leader(company)
    pids = [member.pid for member in peer.members if member.name.startswith(kind)]
    return chance.choice(sorted(pids)) if pids else None


def _leader(company: ChaosCluster) -> int | None:
    """The process that leads the monitors: the owner of their lease begins with its id."""
    with open_database(None, company.deployment) as database:
        leaders = database.transact(lambda c: holders_below(c, MONITOR, ""))
    return next((int(owner.partition("-")[0]) for owner in leaders.values()), None)


def _hit(pid: int | None, sent: signal.Signals) -> bool:
    if pid is None:
        return False
    with suppress(ProcessLookupError):
        os.kill(pid, sent)
        return True
    return False


def _check(
    company: ChaosCluster,
    clients: Sequence[Client],
    expected: dict[str, dict[str, bytes]],
    at_work: Sequence[subprocess.Popen[bytes]],
) -> None:
    for client, process in zip(clients, at_work, strict=True):
        log = company.folder / f"{client.name}.log"
        if process.returncode != 0:
            said = log.read_text(errors="replace")[-2000:]
            raise ChaosFailed("processes", f"{client.name} got no results: {said}")
        if company.results(client) != expected[client.name]:
            raise ChaosFailed("processes", f"{client.name} got other bytes; see {company.folder}")
    with open_database(None, company.deployment) as database:
        published = database.transact(publications_of)
    for client in clients:
        of_client = [it for it in published if _name_of(it.run) == client.name]
        wrong = why_not_once(expected[client.name], of_client)
        if wrong is not None:
            raise ChaosFailed("processes", wrong)


def _name_of(run: str) -> str:
    """What a client calls a run that the server keeps.

    >>> _name_of("local/client-1-2#7")
    'client-1-2'
    """
    return run.rpartition("#")[0].rpartition("/")[2]


def _start(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        return subprocess.Popen(  # noqa: S603  our own commands
            [sys.executable, "-m", "tidegate", *command], stdout=out, stderr=out
        )


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
