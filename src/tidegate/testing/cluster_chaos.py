"""Trials of a whole deployment: its processes are killed and frozen while clients wait.

`tidegate up` runs a server, monitors and workers; `tidegate submit --wait` is a client. Processes
are killed or frozen for longer than their leases, one after the other, and PostgreSQL is killed.
Every client must get the same bytes as without faults in bounded time, and each sink must have been
published once.
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
from tidegate.testing.run_chaos import Trial, publication_error, publications_of, results_in

BOUND = 900.0
"""Seconds within which all clients must have their results."""
START_BOUND = 240.0
FREEZE_SECONDS = 10.0
"""Longer than a lease."""
BETWEEN = (2.0, 8.0)
"""Seconds between two faults."""
MAX_WAVES = 10
"""Waves of clients, at most, until each kind of fault was injected."""
FAULTS = (
    "kill a worker",
    "freeze a worker",
    "kill the leader",
    "kill PostgreSQL",
    "kill the server",
    "freeze the leader",
)
BASELINE = "without faults, each client alone"
NAME = "chaos"


@dataclass(frozen=True, slots=True)
class Client:
    """A client and its data."""

    name: str
    data: Path


@dataclass
class ChaosCluster:
    """A deployment of several processes, and the results of its clients."""

    pipeline: str
    folder: Path
    workers: int = 2
    monitors: int = 2
    shards: int = 2
    spark: str = "local[1]"
    url: str = field(default_factory=lambda: f"127.0.0.1:{_free_port()}")
    on_fault: Callable[[str], None] = lambda _: None
    """Called with a description of each injected fault."""

    @property
    def deployment(self) -> Path:
        """The folder of the deployment."""
        return self.folder / "deployment"

    @contextmanager
    def up(self) -> Iterator[GroupPeer]:
        """Start the deployment, join its group, and stop it at the end of the block."""
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
        """The results of a client."""
        return results_in(self.folder / client.name)

    def _joined(self, process: subprocess.Popen[bytes]) -> GroupPeer:
        until = monotonic() + START_BOUND
        names = {f"worker-{n + 1}" for n in range(self.workers)} | {"server"}
        while monotonic() < until and process.poll() is None:
            address = find(self.deployment)
            if address is not None:
                peer = GroupPeer.join(NAME, address)
                peer.group.wait_for(names, until - monotonic())
                return peer
            sleep(0.1)
        output = (self.folder / "up.log").read_text(errors="replace")[-2000:]
        raise ChaosFailed("none", f"the deployment did not start: {output}")


def cluster_trials(cluster: ChaosCluster, clients: Sequence[Client], seed: int) -> Iterator[Trial]:
    """First each client alone without faults; then waves of all clients under faults.

    A wave starts a new run for each client; waves repeat until every kind of fault was injected.
    """
    began = monotonic()
    expected = {client.name: _results_alone(cluster, client) for client in clients}
    yield Trial(BASELINE, 0, monotonic() - began)
    rng = random.Random(seed)  # noqa: S311  not used for security
    remaining = rng.sample(FAULTS, len(FAULTS))
    with cluster.up() as peer:
        for wave in range(1, MAX_WAVES + 1):
            started = monotonic()
            wave_clients = [Client(f"{client.name}-{wave}", client.data) for client in clients]
            processes = [cluster.submit(client) for client in wave_clients]
            faults = list(_inject_faults(cluster, peer, processes, remaining, rng))
            by_name = {f"{name}-{wave}": results for name, results in expected.items()}
            _check(cluster, wave_clients, by_name, processes)
            kills = sum(fault.startswith("kill") for fault in faults)
            yield Trial(", ".join(faults) or "none", kills, monotonic() - started)
            if not remaining:
                break
        peer.leave()
    if remaining:
        raise ChaosFailed("processes", f"faults that were not injected: {', '.join(remaining)}")


def _results_alone(cluster: ChaosCluster, client: Client) -> dict[str, bytes]:
    """The results of a client with `tidegate run`, in one process."""
    folder = cluster.folder / "alone" / client.name
    command = ["run", cluster.pipeline, "--data", str(client.data), "--out", str(folder / "out")]
    command += ["--shards", str(cluster.shards), "--spark", cluster.spark]
    process = _start(command, folder / "log")
    if process.wait(BOUND) != 0:
        output = (folder / "log").read_text(errors="replace")[-2000:]
        raise ChaosFailed("none", f"the run without faults failed: {output}")
    return results_in(folder)


def _inject_faults(
    cluster: ChaosCluster,
    peer: GroupPeer,
    processes: Sequence[subprocess.Popen[bytes]],
    remaining: list[str],
    rng: random.Random,
) -> Iterator[str]:
    """Inject the remaining faults one after the other, while clients wait."""
    until = monotonic() + BOUND
    while remaining and not _have_ended(processes, rng.uniform(*BETWEEN)):
        if _inject(cluster, peer, remaining[0], rng):
            yield remaining.pop(0)
        else:
            remaining.append(remaining.pop(0))  # no such process at present
    if not _have_ended(processes, until - monotonic()):
        for process in processes:
            process.kill()
        raise ChaosFailed("processes", f"a client has no results after {BOUND:g} s")


def _have_ended(processes: Sequence[subprocess.Popen[bytes]], seconds: float) -> bool:
    """Whether all clients have ended, after at most this time."""
    until = monotonic() + seconds
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, until - monotonic()))
    return all(process.poll() is not None for process in processes)


def _inject(cluster: ChaosCluster, peer: GroupPeer, fault: str, rng: random.Random) -> bool:
    """Inject a fault; whether there was a process to signal."""
    action, _, kind = fault.partition(" ")
    pid = _target_pid(cluster, peer, kind.split(" ")[-1], rng)
    is_sent = _signal(pid, signal.SIGKILL if action == "kill" else signal.SIGSTOP)
    if is_sent:
        cluster.on_fault(f"{fault} (pid {pid})")
    if action == "freeze":
        sleep(FREEZE_SECONDS)
        _signal(pid, signal.SIGCONT)
    return is_sent


def _target_pid(
    cluster: ChaosCluster, peer: GroupPeer, kind: str, rng: random.Random
) -> int | None:
    if kind == "PostgreSQL":
        return EmbeddedPostgres(cluster.deployment / "postgres").pid
    if kind == "leader":
        return _leader(cluster)
    pids = [member.pid for member in peer.members if member.name.startswith(kind)]
    return rng.choice(sorted(pids)) if pids else None


def _leader(cluster: ChaosCluster) -> int | None:
    """The pid of the leading monitor: the owner of its lease begins with it."""
    with open_database(None, cluster.deployment) as database:
        leaders = database.transact(lambda c: holders_below(c, MONITOR, ""))
    return next((int(owner.partition("-")[0]) for owner in leaders.values()), None)


def _signal(pid: int | None, sent: signal.Signals) -> bool:
    if pid is None:
        return False
    with suppress(ProcessLookupError):
        os.kill(pid, sent)
        return True
    return False


def _check(
    cluster: ChaosCluster,
    clients: Sequence[Client],
    expected: dict[str, dict[str, bytes]],
    processes: Sequence[subprocess.Popen[bytes]],
) -> None:
    for client, process in zip(clients, processes, strict=True):
        log = cluster.folder / f"{client.name}.log"
        if process.returncode != 0:
            output = log.read_text(errors="replace")[-2000:]
            raise ChaosFailed("processes", f"{client.name} got no results: {output}")
        if cluster.results(client) != expected[client.name]:
            raise ChaosFailed(
                "processes", f"the results of {client.name} differ; see {cluster.folder}"
            )
    with open_database(None, cluster.deployment) as database:
        published = database.transact(publications_of)
    for client in clients:
        of_client = [
            publication for publication in published if _name_of(publication.run) == client.name
        ]
        wrong = publication_error(expected[client.name], of_client)
        if wrong is not None:
            raise ChaosFailed("processes", wrong)


def _name_of(run: str) -> str:
    """The client's name of a run, from the server's run key.

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
