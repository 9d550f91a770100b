"""A standalone Spark cluster on this machine: a master and its workers, each its own process.

Everything listens on loopback, on ports that the system chooses; whoever is started here is ended
here, by its id.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pyspark

from tests.jvm import SHORT_LIVED
from tests.waiting import wait_until

SPARK_HOME = Path(pyspark.__file__).parent
STARTED = 120.0
"""Seconds within which a process of Spark has to be ready, on a machine however busy."""
BOUNDED = ("timeout", "600")
"""Whoever is killed and cannot end its cluster leaves none behind for ever."""
EXECUTOR_MEMORY = "512m"
"""About the least that Spark accepts."""
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
_MASTER_AT = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"


@dataclass
class Cluster:
    """A master that runs, and the workers that were started for it."""

    folder: Path
    master: Daemon
    workers: list[Daemon] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Where applications find the master."""
        found = _MASTER_AT.search(self.master.log_text)
        assert found, self.master.log_text
        return found.group(1)

    @property
    def secret(self) -> dict[str, str]:
        """The environment of processes that know the cluster's secret."""
        return {"SPARK_CONF_DIR": str(self.folder / "conf")}

    def add_workers(self, number: int, cores: int = 1, memory: str = "1g") -> None:
        """Start workers and wait until the master knows them."""
        names = [f"worker-{len(self.workers) + it}" for it in range(number)]
        for name in names:
            capabilities = ("-c", str(cores), "-m", memory, "-d", str(self.folder / name))
            log = self.folder / f"{name}.log"
            worker = Daemon.start(
                "worker.Worker", *capabilities, self.url, log=log, secret=self.secret
            )
            self.workers.append(worker)
        for worker in self.workers:
            worker.wait_for(_REGISTERED)

    @property
    def worker_ids(self) -> list[int]:
        """The processes that were started for workers."""
        return [worker.process.pid for worker in self.workers]


@dataclass
class Daemon:
    """One process of the cluster, and what it has logged."""

    process: subprocess.Popen[bytes]
    log: Path

    @classmethod
    def start(cls, name: str, *arguments: str, log: Path, secret: dict[str, str]) -> Daemon:
        spark_class = str(SPARK_HOME / "bin" / "spark-class")
        where = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*BOUNDED, spark_class, f"org.apache.spark.deploy.{name}", *where, *arguments],
                stdout=output,
                stderr=output,
                env={**environment(), **secret},
                start_new_session=True,
            )
        return cls(process, log)

    @property
    def log_text(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, text: str) -> None:
        def is_there() -> bool:
            assert self.process.poll() is None, self.log_text
            return text in self.log_text

        wait_until(is_there, STARTED)

    def end(self) -> None:
        """End the process and what it has started."""
        others = _children(self.process.pid)
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        _, alive = psutil.wait_procs(others, timeout=10)
        for other in alive:
            other.kill()


def environment(memory: str = "128m") -> dict[str, str]:
    """For every process of Spark here: loopback only, and no more memory than it needs."""
    options = {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": memory,
        # Executors inherit it; their own options are those of the session.
        "JDK_JAVA_OPTIONS": SHORT_LIVED,
        # Otherwise it takes a port that others know.
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
    }
    return {**os.environ, **options}


@contextmanager
def running_cluster(folder: Path, workers: int) -> Iterator[Cluster]:
    """A cluster of workers with one core and 1 GiB each, until the end of the block."""
    secret = {"SPARK_CONF_DIR": str(_configured(folder))}
    master = Daemon.start("master.Master", log=folder / "master.log", secret=secret)
    cluster = Cluster(folder, master)
    try:
        cluster.master.wait_for("I have been elected leader!")
        cluster.add_workers(workers)
        yield cluster
    finally:
        for daemon in (*cluster.workers, cluster.master):
            daemon.end()


def _configured(folder: Path) -> Path:
    """A folder with what all processes of a cluster have to know, as docs/deployment.md says."""
    conf = folder / "conf"
    conf.mkdir(parents=True, mode=0o700)
    defaults = conf / "spark-defaults.conf"
    defaults.touch(mode=0o600)
    defaults.write_text(
        f"spark.authenticate true\nspark.network.crypto.enabled true\n"
        f"spark.authenticate.secret {secrets.token_hex(32)}\n"
    )
    return conf


def executors_of(workers: Iterable[int]) -> list[psutil.Process]:
    """The executors that these workers run, of any application."""
    children = [child for worker in workers for child in _children(worker)]
    return [child for child in children if _EXECUTOR in _command(child)]


def _children(process: int) -> list[psutil.Process]:
    try:
        return list(psutil.Process(process).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []
