"""What a pipeline needs of the engine it runs on, and what of that an engine does not offer.

    session ──probes──▶ Offer ──unfit(needs, offer)──▶ complaints, before anything is served

An engine is Spark in this process, on a cluster or behind a Connect server, or another server that
speaks Spark Connect. The facts are gathered by `tidegate.spark.session.probes`; here is what
follows from them, decided without asking anybody.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from tidegate.errors import Complaint, listed


class Kind(Enum):
    """Where the rows are computed, as far as it matters for what can be missing."""

    LOCAL = "a local Spark"
    CLUSTER = "a Spark cluster"
    CONNECT = "Spark behind a Connect server"
    OTHER = "a Connect server that is not Spark"


class Feature(Enum):
    """What Tidegate relies on and Spark does; without it, results would be wrong or missing."""

    OVERFLOW = "overflow"
    SUMS = "sums"
    CASTS = "casts"
    DIVISION = "division"
    HASHES = "hashes"
    DECIMALS = "decimals"
    FILE_NAMES = "file names"

    @property
    def promise(self) -> str:
        """What holds where the feature is there."""
        return _PROMISES[self]


_PROMISES = {
    Feature.OVERFLOW: "whole numbers that overflow raise an error",
    Feature.SUMS: "sums that overflow raise an error",
    Feature.CASTS: "a cast that cannot be raises an error",
    Feature.DIVISION: "a division by zero raises an error",
    Feature.HASHES: "keys have the hashes that Spark gives them",
    Feature.DECIMALS: "sums and averages of decimals have Spark's types and digits",
    Feature.FILE_NAMES: "rows know the file they come from, so that small steps share a job",
}


@dataclass(frozen=True, slots=True)
class Executor:
    """What each executor is asked to have; no cores mean all that its worker has."""

    cores: int | None = None
    mib: int = 1024


@dataclass(frozen=True, slots=True)
class Needs:
    """What has to be there before a pipeline is served."""

    slots: int = 1
    """Tasks that can run at the same time."""
    executor: Executor = Executor()
    features: frozenset[Feature] = frozenset(Feature)


@dataclass(frozen=True, slots=True)
class Host:
    """A worker of a standalone cluster: what it has, for all applications together."""

    cores: int
    mib: int

    def could_hold(self, executor: Executor) -> bool:
        """Whether the executor would fit if nobody else was there."""
        return self.cores >= (executor.cores or 1) and self.mib >= executor.mib

    def __str__(self) -> str:
        return f"{_counted(self.cores, 'core')} and {self.mib} MiB"


@dataclass(frozen=True, slots=True)
class Standalone:
    """What the master of a standalone cluster knows: its workers, and who else uses them."""

    hosts: tuple[Host, ...]
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Shared:
    """What came of using the data folder from both sides; a trouble is empty where there is none.

    Rows that Spark wrote count when this process sees them, and the other way round.
    """

    folder: str
    trouble_here: str = ""
    trouble_there: str = ""
    written_there: int = 0
    seen_here: int = 0
    written_here: int = 0
    seen_there: int = 0


@dataclass(frozen=True, slots=True)
class Offer:
    """What an engine turned out to have.

    `slots` is None where it does not tell, which it need not: something has run there. `cluster` is
    None where nobody can be asked about it. `within` are the seconds that it was given.
    """

    kind: Kind
    name: str
    slots: int | None = None
    cluster: Standalone | None = None
    shared: Shared | None = None
    lacks: frozenset[Feature] = frozenset()
    refused: tuple[tuple[str, str], ...] = ()
    """Stages of the plan that it cannot run, and why."""
    within: float = 0.0


def unfit(needs: Needs, offer: Offer) -> list[Complaint]:
    """What is missing, required versus available; nothing where the pipeline can be served."""
    return [
        *_about_slots(needs, offer),
        *(_about_folder(offer.shared) if offer.shared else ()),
        *_about_features(needs, offer),
        *_about_plan(offer),
    ]


def _about_slots(needs: Needs, offer: Offer) -> Iterator[Complaint]:
    if offer.slots is None or offer.slots >= needs.slots:
        return
    required = f"{_counted(needs.slots, 'task slot')} on {_sized(needs.executor)}"
    within = f"{offer.slots} within {offer.within:g} s"
    found, advice = _explained(needs.executor, offer.cluster)
    yield Complaint("room for tasks", required, within + found, advice)


def _explained(executor: Executor, cluster: Standalone | None) -> tuple[str, str]:
    """Why there is no executor, as far as it is known, and what to do about it."""
    if cluster is None:
        return "", "Look at what the cluster's manager says about this application"
    if not cluster.hosts:
        return ": no worker has registered with the master", "Start workers for this master"
    found = f": {_counted(len(cluster.hosts), 'worker')} with {listed([*map(str, cluster.hosts)])}"
    if not any(host.could_hold(executor) for host in cluster.hosts):
        smaller = "Ask for less (spark.executor.memory, spark.executor.cores)"
        return found, f"{smaller} or start larger workers"
    if cluster.others:
        found += f", shared with {listed(cluster.others)}"
        return found, "Let others take less (spark.cores.max), or start more workers"
    return found, "Look at the logs of the workers: executors do not start or do not get here"


def _about_folder(shared: Shared) -> Iterator[Complaint]:
    what = f"the data folder {shared.folder}"
    advice = "Put it where this process, Spark's driver and all executors read and write alike"
    if shared.trouble_here:
        yield Complaint(what, "writable by this process", shared.trouble_here, advice)
        return
    if shared.trouble_there:
        yield Complaint(what, "readable and writable by executors", shared.trouble_there, advice)
    if shared.seen_there < shared.written_here:
        required = f"executors see the {shared.written_here} rows that this process writes"
        yield Complaint(what, required, f"they see {shared.seen_there}", advice)
    if shared.seen_here < shared.written_there:
        required = f"this process sees the {shared.written_there} rows that executors write"
        yield Complaint(what, required, f"it sees {shared.seen_here}", advice)


def _about_features(needs: Needs, offer: Offer) -> Iterator[Complaint]:
    for feature in Feature:
        if feature in needs.features & offer.lacks:
            found = f"{offer.name} does otherwise"
            yield Complaint(feature.value, feature.promise, found, "Use Spark for this pipeline")


def _about_plan(offer: Offer) -> Iterator[Complaint]:
    for stage, reason in offer.refused:
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
