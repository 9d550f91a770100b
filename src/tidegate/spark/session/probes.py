"""Probes what an engine has, by small jobs with a time limit, before a pipeline is served.

On a cluster without executors the first job would wait without limit, a folder that only the driver
sees would lose rows, and an engine that is not Spark may compute by other rules.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from tidegate.errors import EngineUnfit
from tidegate.spark.analyze.schemas import empty
from tidegate.spark.jobs.apply_operator import apply_operators
from tidegate.spark.jobs.spark_errors import SPARK_ERRORS, cause_of
from tidegate.spark.session.engine_features import missing_features
from tidegate.spark.session.engines import (
    EngineCapabilities,
    EngineKind,
    EngineRequirements,
    Executor,
    FolderSharing,
    StandaloneCluster,
    mebibytes,
    shortfalls,
)
from tidegate.spark.session.jvm_liveness import is_remote
from tidegate.spark.session.shared_folder_probe import probe_folder, probe_sharing
from tidegate.spark.session.standalone import read_cluster
from tidegate.spark.session.timeout import run_with_timeout

if TYPE_CHECKING:
    from tidegate.spark.analyze.prepare import PreparedStage
    from tidegate.spark.session.sessions import Session

BOUND = "TIDEGATE_ENGINE_BOUND"
"""Environment variable: the time limit of each probe in seconds."""
DEFAULT_BOUND = 60.0
"""Enough for a cluster that starts executors on demand."""
_MASTER = "spark.master"


def ensure_fit(
    session: Session,
    root: str,
    stages: Mapping[str, PreparedStage],
    environment: Mapping[str, str] = os.environ,
) -> EngineCapabilities:
    """The capabilities of the session's engine, if it can run these stages on data below `root`.

    Raises `EngineUnfit`, within a time limit.
    """
    capabilities = probe(session, root, stages, float(environment.get(BOUND, DEFAULT_BOUND)))
    complaints = shortfalls(EngineRequirements(executor=_executor(session)), capabilities)
    if complaints:
        raise EngineUnfit(capabilities.name, tuple(complaints))
    return capabilities


def probe(
    session: Session, root: str, stages: Mapping[str, PreparedStage], within: float
) -> EngineCapabilities:
    """Probe everything that can be missing in an engine of this kind."""
    kind, name = identify(session)
    if kind is EngineKind.LOCAL:
        with probe_folder(root, files=1) as probed:
            return EngineCapabilities(
                kind, name, shared=FolderSharing(root, error_here=probed.error)
            )
    if run_with_timeout(session, within, session.range(1).count) is None:
        return EngineCapabilities(
            kind, name, slots=0, cluster=_cluster(session, kind), within=within
        )
    with probe_folder(root) as probed:
        shared = probe_sharing(session, probed, within)
        if kind is not EngineKind.OTHER or not probed.files:
            return EngineCapabilities(
                kind, name, slots=_slots(session, kind), shared=shared, within=within
            )
        missing = missing_features(session, probed.files[0])
        return EngineCapabilities(
            kind,
            name,
            shared=shared,
            missing_features=missing,
            refused=(*_refused(session, stages),),
        )


def identify(session: Session) -> tuple[EngineKind, str]:
    """The kind of a session's engine, and its name in messages.

    Read from settings only: over Connect even the smallest query is a job, for which there may be
    no executor. Every Spark has a master.
    """
    master = str(session.conf.get(_MASTER, ""))
    if is_remote(session):
        if not master:
            return EngineKind.OTHER, "a Connect server that is not Spark"
        return EngineKind.CONNECT, f"Spark {session.version} on {master}, over Connect"
    is_local = master == "local" or master.startswith("local[")
    return (
        EngineKind.LOCAL if is_local else EngineKind.CLUSTER,
        f"Spark {session.version} on {master}",
    )


# --- Task slots ------------------------------------------------------------------------------


def _executor(session: Session) -> Executor:
    """The size of each executor, by Spark's own settings and defaults."""
    cores = session.conf.get("spark.executor.cores", None)
    memory = session.conf.get("spark.executor.memory", None)
    return Executor(int(cores) if cores else None, mebibytes(memory or "1g"))


def _cluster(session: Session, kind: EngineKind) -> StandaloneCluster | None:
    """The state of the cluster; over Connect it cannot be read."""
    return (
        read_cluster(session, str(session.conf.get(_MASTER)))
        if kind is EngineKind.CLUSTER
        else None
    )


def _slots(session: Session, kind: EngineKind) -> int | None:
    """How many tasks can run at once; None where it is not reported."""
    if kind is not EngineKind.CLUSTER:
        return None
    context: Any = session.sparkContext
    try:
        driver = context._jsc.sc()  # noqa: SLF001  PySpark has no public way to its driver
        profile = driver.resourceProfileManager().defaultResourceProfile()
        return int(driver.maxNumConcurrentTasks(profile))
    except Py4JError:
        return None


# --- The plan --------------------------------------------------------------------------------


def _refused(session: Session, stages: Mapping[str, PreparedStage]) -> Iterator[tuple[str, str]]:
    """The stages that the engine cannot run, tried over empty inputs."""
    for name, prepared in stages.items():
        inputs = [empty(session, schema) for schema in prepared.inputs]
        try:
            apply_operators(prepared.stage.operators, inputs, prepared.types).count()
        except SPARK_ERRORS as error:
            yield name, cause_of(error).reason
