"""Finding out what an engine offers: small bounded jobs, asked once, before a pipeline is served.

A cluster that gives no executor would let the first job wait for ever, a folder that only the
driver sees would lose rows, and an engine that is not Spark may compute by other rules. All of
that is found out here, with nothing at stake.
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
from tidegate.spark.session.engine_features import lacking
from tidegate.spark.session.engines import (
    Executor,
    Kind,
    Needs,
    Offer,
    Shared,
    Standalone,
    mebibytes,
    unfit,
)
from tidegate.spark.session.jvm_liveness import is_remote
from tidegate.spark.session.shared_folder_probe import shared_by, tried_folder
from tidegate.spark.session.standalone import ask_master
from tidegate.spark.session.timeout import in_time

if TYPE_CHECKING:
    from tidegate.spark.analyze.prepare import PreparedStage
    from tidegate.spark.session.sessions import Session

BOUND = "TIDEGATE_ENGINE_BOUND"
"""The variable for the seconds that an engine gets for each small job."""
DEFAULT_BOUND = 60.0
"""Enough for a cluster that starts its executors only when there is work."""
_MASTER = "spark.master"


def ensure_fit(
    session: Session,
    root: str,
    stages: Mapping[str, PreparedStage],
    environment: Mapping[str, str] = os.environ,
) -> Offer:
    """What the session's engine offers, if that is enough to run these stages on data below `root`.

    Raises `EngineUnfit`, within a bound.
    """
    offer = probe(session, root, stages, float(environment.get(BOUND, DEFAULT_BOUND)))
    complaints = unfit(Needs(executor=_executor(session)), offer)
    if complaints:
        raise EngineUnfit(offer.name, tuple(complaints))
    return offer


def probe(session: Session, root: str, stages: Mapping[str, PreparedStage], within: float) -> Offer:
    """Ask an engine everything that can be missing in one of its kind."""
    kind, name = identify(session)
    if kind is Kind.LOCAL:
        with tried_folder(root, files=1) as tried:
            return Offer(kind, name, shared=Shared(root, trouble_here=tried.trouble))
    if in_time(session, within, session.range(1).count) is None:
        return Offer(kind, name, slots=0, cluster=_cluster(session, kind), within=within)
    with tried_folder(root) as tried:
        shared = shared_by(session, tried, within)
        if kind is not Kind.OTHER or not tried.files:
            return Offer(kind, name, slots=_slots(session, kind), shared=shared, within=within)
        lacks = lacking(session, tried.files[0])
        return Offer(kind, name, shared=shared, lacks=lacks, refused=(*_refused(session, stages),))


def identify(session: Session) -> tuple[Kind, str]:
    """The kind of a session's engine, and what to call it.

    Told by settings alone: over Connect the smallest query is a job, and nobody may be there to
    run it. Every Spark has a master.
    """
    master = str(session.conf.get(_MASTER, ""))
    if is_remote(session):
        if not master:
            return Kind.OTHER, "a Connect server that is not Spark"
        return Kind.CONNECT, f"Spark {session.version} on {master}, over Connect"
    is_local = master == "local" or master.startswith("local[")
    return Kind.LOCAL if is_local else Kind.CLUSTER, f"Spark {session.version} on {master}"


# --- Room for tasks --------------------------------------------------------------------------


def _executor(session: Session) -> Executor:
    """What each executor is asked to have, by Spark's own settings and defaults."""
    cores = session.conf.get("spark.executor.cores", None)
    memory = session.conf.get("spark.executor.memory", None)
    return Executor(int(cores) if cores else None, mebibytes(memory or "1g"))


def _cluster(session: Session, kind: Kind) -> Standalone | None:
    """Over Connect only the server could ask its master."""
    return ask_master(session, str(session.conf.get(_MASTER))) if kind is Kind.CLUSTER else None


def _slots(session: Session, kind: Kind) -> int | None:
    """How many tasks can run at once; None where nobody tells."""
    if kind is not Kind.CLUSTER:
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
    """The stages that an engine cannot run over no rows, and therefore not over any."""
    for name, prepared in stages.items():
        inputs = [empty(session, schema) for schema in prepared.inputs]
        try:
            apply_operators(prepared.stage.operators, inputs, prepared.types).count()
        except SPARK_ERRORS as error:
            yield name, cause_of(error).reason
