"""Decides whether an engine can run a pipeline, from what probes have found.

    session ──probes──▶ EngineCapabilities ──shortfalls(requirements, capabilities)──▶ complaints

An engine is Spark in this process, on a cluster or behind a Connect server, or another server of
the Spark Connect protocol. `tidegate.spark.session.probes` reads the facts; this module is pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from tidegate.errors import Complaint, listed


class EngineKind(Enum):
    """Where rows are computed, which determines what can be missing."""

    LOCAL = "a local Spark"
    CLUSTER = "a Spark cluster"
    CONNECT = "Spark behind a Connect server"
    OTHER = "a Connect server that is not Spark"


class Feature(Enum):
    """Behaviour of Spark without which results would be wrong or missing."""

    OVERFLOW = "overflow"
    SUMS = "sums"
    CASTS = "casts"
    DIVISION = "division"
    HASHES = "hashes"
    DECIMALS = "decimals"
    FILE_NAMES = "file names"

    @property
    def promise(self) -> str:
        """What an engine with this feature guarantees."""
        return _PROMISES[self]


_PROMISES = {
    Feature.OVERFLOW: "whole numbers that overflow raise an error",
    Feature.SUMS: "sums that overflow raise an error",
    Feature.CASTS: "an invalid cast raises an error",
    Feature.DIVISION: "a division by zero raises an error",
    Feature.HASHES: "keys have the hashes that Spark gives them",
    Feature.DECIMALS: "sums and averages of decimals have Spark's types and digits",
    Feature.FILE_NAMES: "rows have the name of their file, so that small tasks share a job",
}


@dataclass(frozen=True, slots=True)
class Executor:
    """The size of each executor; without cores it has all cores of its worker."""

    cores: int | None = None
    mib: int = 1024


@dataclass(frozen=True, slots=True)
class EngineRequirements:
    """What an engine must have before a pipeline is served."""

    slots: int = 1
    """Tasks that can run at the same time."""
    executor: Executor = Executor()
    features: frozenset[Feature] = frozenset(Feature)


@dataclass(frozen=True, slots=True)
class WorkerHost:
    """A worker of a standalone cluster: its resources for all applications together."""

    cores: int
    mib: int

    def can_run(self, executor: Executor) -> bool:
        """Whether the executor would fit if no other application used the worker."""
        return self.cores >= (executor.cores or 1) and self.mib >= executor.mib

    def __str__(self) -> str:
        return f"{_counted(self.cores, 'core')} and {self.mib} MiB"


@dataclass(frozen=True, slots=True)
class StandaloneCluster:
    """The workers of a standalone cluster, and the other applications that use them."""

    hosts: tuple[WorkerHost, ...]
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FolderSharing:
    """The result of writing to the data folder from both sides and reading it on the other.

    *Here* is this process, *there* are Spark's executors. An error is empty where there is none.
    """

    folder: str
    error_here: str = ""
    error_there: str = ""
    written_there: int = 0
    seen_here: int = 0
    written_here: int = 0
    seen_there: int = 0


@dataclass(frozen=True, slots=True)
class EngineCapabilities:
    """What the probes have found about an engine.

    `slots` is None where the engine does not report it; at least one job has run there. `cluster`
    is None where its state cannot be read. `within` is the time limit of the probes in seconds.
    """

    kind: EngineKind
    name: str
    slots: int | None = None
    cluster: StandaloneCluster | None = None
    shared: FolderSharing | None = None
    missing_features: frozenset[Feature] = frozenset()
    refused: tuple[tuple[str, str], ...] = ()
    """Stages of the plan that it cannot run, and the reasons."""
    within: float = 0.0


def shortfalls(
    requirements: EngineRequirements, capabilities: EngineCapabilities
) -> list[Complaint]:
    """What is missing, required versus available; empty if the pipeline can be served."""
    return [
        *_about_slots(requirements, capabilities),
        *(_about_folder(capabilities.shared) if capabilities.shared else ()),
        *_about_features(requirements, capabilities),
        *_about_plan(capabilities),
    ]


def _about_slots(
    requirements: EngineRequirements, capabilities: EngineCapabilities
) -> Iterator[Complaint]:
    if capabilities.slots is None or capabilities.slots >= requirements.slots:
        return
    required = f"{_counted(requirements.slots, 'task slot')} on {_sized(requirements.executor)}"
    within = f"{capabilities.slots} within {capabilities.within:g} s"
    found, advice = _explained(requirements.executor, capabilities.cluster)
    yield Complaint("task slots", required, within + found, advice)


def _explained(executor: Executor, cluster: StandaloneCluster | None) -> tuple[str, str]:
    """Why there is no executor, as far as it is known, and what to do."""
    if cluster is None:
        return "", "Check the status of this application in the cluster manager"
    if not cluster.hosts:
        return ": no worker has registered with the master", "Start workers for this master"
    found = f": {_counted(len(cluster.hosts), 'worker')} with {listed([*map(str, cluster.hosts)])}"
    if not any(host.can_run(executor) for host in cluster.hosts):
        smaller = "Request less (spark.executor.memory, spark.executor.cores)"
        return found, f"{smaller} or start larger workers"
    if cluster.others:
        found += f", shared with {listed(cluster.others)}"
        return found, "Limit other applications (spark.cores.max), or start more workers"
    return (
        found,
        "Check the logs of the workers: executors do not start, or cannot connect to the driver",
    )


def _about_folder(shared: FolderSharing) -> Iterator[Complaint]:
    what = f"the data folder {shared.folder}"
    advice = "Use a folder that this process, Spark's driver and all executors can read and write"
    if shared.error_here:
        yield Complaint(what, "writable by this process", shared.error_here, advice)
        return
    if shared.error_there:
        yield Complaint(what, "readable and writable by executors", shared.error_there, advice)
    if shared.seen_there < shared.written_here:
        required = f"executors see the {shared.written_here} rows that this process writes"
        yield Complaint(what, required, f"they see {shared.seen_there}", advice)
    if shared.seen_here < shared.written_there:
        required = f"this process sees the {shared.written_there} rows that executors write"
        yield Complaint(what, required, f"it sees {shared.seen_here}", advice)


def _about_features(
    requirements: EngineRequirements, capabilities: EngineCapabilities
) -> Iterator[Complaint]:
    for feature in Feature:
        if feature in requirements.features & capabilities.missing_features:
            found = f"{capabilities.name} behaves differently"
            yield Complaint(feature.value, feature.promise, found, "Use Spark for this pipeline")


def _about_plan(capabilities: EngineCapabilities) -> Iterator[Complaint]:
    for stage, reason in capabilities.refused:
        yield Complaint(f"stage {stage}", "it runs", reason, "Use Spark for this pipeline")


def mebibytes(text: str) -> int:
    """An amount of memory as Spark's settings write it, rounded down; plain numbers are MiB.

    >>> [mebibytes(it) for it in ("512m", "2g", "1024", "1048576k", "512MB")]
    [512, 2048, 1024, 1024, 512]
    """
    number = text.strip().lower().removesuffix("b")
    units = {"k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1024.0**2}
    unit = units.get(number[-1:])
    return int(float(number[:-1]) * unit) if unit else int(number)


def _sized(executor: Executor) -> str:
    cores = f"{_counted(executor.cores, 'core')} and " if executor.cores else ""
    return f"an executor of {cores}{executor.mib} MiB"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
