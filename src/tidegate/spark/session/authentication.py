"""Which processes may connect to a Spark driver: those with its secret.

Spark's own connections carry serialized Java objects: a process that can open one can run code in
the driver. So drivers require a secret. For `local` masters (also for YARN and Kubernetes) Spark
generates one for each session. A standalone cluster has one secret, which its operator configures
for master, workers and drivers in a file; see docs/deployment.md.

A secret in the settings is refused: it would be on the command line of `spark-submit`, which every
user of the machine can read.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.errors import SparkUnprotected

AUTHENTICATE = "spark.authenticate"
SECRET = "spark.authenticate.secret"  # noqa: S105  the name of a setting
BIND = "spark.driver.bindAddress"
LOOPBACK: Mapping[str, str] = {BIND: "127.0.0.1", "spark.driver.host": "127.0.0.1"}
CONNECT_BIND: Mapping[str, str] = {"spark.connect.grpc.binding.address": "127.0.0.1"}
ENCRYPTED: Mapping[str, str] = {"spark.network.crypto.enabled": "true"}

ADVICE = (
    "Put spark.authenticate.secret into a spark-defaults.conf that only its owner can read, and let"
    " SPARK_CONF_DIR point at its folder for master, workers and Tidegate."
)
_VISIBLE = "its secret would be visible in the list of processes"
_REACHABLE = "its driver would listen beyond this machine without authentication"
_LOCAL = ("127.0.0.1", "::1", "localhost")


def protection(
    master: str, given: Mapping[str, str], arguments: str = "", *, is_here: bool
) -> dict[str, str]:
    """The settings that protect a driver on `master`; those given override them.

    `arguments` are those of `spark-submit`, `is_here` is whether driver, master and workers are
    all on this machine. Raises `SparkUnprotected`.

    >>> protection("local[2]", {}, is_here=True)["spark.authenticate"]
    'true'
    """
    if f"{SECRET}=" in arguments or SECRET in given:
        raise SparkUnprotected(master, _VISIBLE, ADVICE)
    is_bound_here = is_here and given.get(BIND, LOOPBACK[BIND]) in _LOCAL
    if given.get(AUTHENTICATE, "true").strip().lower() != "true" and not is_bound_here:
        raise SparkUnprotected(master, _REACHABLE, f"Leave {AUTHENTICATE} on. {ADVICE}")
    here = LOOPBACK if is_here else {}
    encrypted = {} if master.startswith("local") else ENCRYPTED
    return {AUTHENTICATE: "true", **here, **encrypted}
