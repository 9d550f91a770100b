"""Asking the master of a standalone Spark cluster which workers it has, and who uses them.

A driver that gets no executor is told nothing but to wait. Its master knows the reason, and
answers a driver's own connection, whether or not its web pages can be reached from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from tidegate.spark.session.engines import Host, Standalone
from tidegate.spark.session.sessions import STANDALONE

if TYPE_CHECKING:
    from tidegate.spark.session.sessions import Session

_MESSAGES = "org.apache.spark.deploy.DeployMessages"


def ask_master(session: Session, master: str) -> Standalone | None:
    """What the master knows; None where there is none that answers. For a classic session."""
    if not master.startswith(STANDALONE):
        return None
    for address in master.removeprefix(STANDALONE).split(","):
        try:
            return _told(session, _state(session, address))
        except (Py4JError, ValueError):
            continue  # of several masters, only one is in charge
    return None


def _state(session: Session, address: str) -> Any:
    context: Any = session.sparkContext
    jvm = context._jvm  # noqa: SLF001  PySpark has no public way to its driver
    host, _, port = address.rpartition(":")
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    question = loader.loadClass(f"{_MESSAGES}$RequestMasterState$").getField("MODULE$").get(None)
    answer = loader.loadClass(f"{_MESSAGES}$MasterStateResponse")
    environment = context._jsc.sc().env().rpcEnv()  # noqa: SLF001
    where = jvm.org.apache.spark.rpc.RpcAddress(host, int(port))
    asked = environment.setupEndpointRef(where, "Master")
    return asked.askSync(question, jvm.scala.reflect.ClassTag.apply(answer))


def _told(session: Session, state: Any) -> Standalone:
    """How much of a worker is in use stays in the master; who uses the cluster is told."""
    ours = session.sparkContext.applicationId
    apps = [(str(app.id()), str(app.desc().name())) for app in state.activeApps()]
    workers = [worker for worker in state.workers() if worker.isAlive()]
    return Standalone(
        hosts=tuple(Host(int(it.cores()), int(it.memory())) for it in workers),
        others=tuple(f"{name} ({id})" for id, name in apps if id != ours),
    )
