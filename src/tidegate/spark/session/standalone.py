"""Reads from the master of a standalone Spark cluster which workers and applications it has.

A driver without executors does not learn the reason. The master knows it, and answers over the
driver's RPC connection, also where its web pages cannot be reached.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from tidegate.spark.session.engines import StandaloneCluster, WorkerHost
from tidegate.spark.session.sessions import STANDALONE

if TYPE_CHECKING:
    from tidegate.spark.session.sessions import Session

_MESSAGES = "org.apache.spark.deploy.DeployMessages"


def read_cluster(session: Session, master: str) -> StandaloneCluster | None:
    """The state of the cluster; None if no master answers. For a classic session."""
    if not master.startswith(STANDALONE):
        return None
    for address in master.removeprefix(STANDALONE).split(","):
        try:
            return _cluster_of(session, _state(session, address))
        except (Py4JError, ValueError):
            continue  # of several masters, only the leader answers
    return None


def _state(session: Session, address: str) -> Any:
    context: Any = session.sparkContext
    jvm = context._jvm  # noqa: SLF001  PySpark has no public way to its driver
    host, _, port = address.rpartition(":")
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    request = loader.loadClass(f"{_MESSAGES}$RequestMasterState$").getField("MODULE$").get(None)
    response = loader.loadClass(f"{_MESSAGES}$MasterStateResponse")
    environment = context._jsc.sc().env().rpcEnv()  # noqa: SLF001
    rpc_address = jvm.org.apache.spark.rpc.RpcAddress(host, int(port))
    endpoint = environment.setupEndpointRef(rpc_address, "Master")
    return endpoint.askSync(request, jvm.scala.reflect.ClassTag.apply(response))


def _cluster_of(session: Session, state: Any) -> StandaloneCluster:
    """Workers and other applications; the master does not report how much of a worker is in use."""
    ours = session.sparkContext.applicationId
    apps = [(str(app.id()), str(app.desc().name())) for app in state.activeApps()]
    workers = [worker for worker in state.workers() if worker.isAlive()]
    return StandaloneCluster(
        hosts=tuple(WorkerHost(int(it.cores()), int(it.memory())) for it in workers),
        others=tuple(f"{name} ({id})" for id, name in apps if id != ours),
    )
