"""Spark's driver answers no process that does not know its secret, while jobs run."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
from py4j.protocol import Py4JJavaError

from tidegate.spark import Session


def java_of(spark: Session) -> Any:
    context: Any = spark.sparkContext
    return context._jvm  # noqa: SLF001  PySpark has no public way to its driver


def driver_of(spark: Session) -> Any:
    context: Any = spark.sparkContext
    return context._jsc.sc().env()  # noqa: SLF001


def process_of(spark: Session) -> psutil.Process:
    return psutil.Process(java_of(spark).java.lang.ProcessHandle.current().pid())


@pytest.fixture
def stranger(spark: Session) -> Iterator[Any]:
    """A client of Spark's RPC that knows no secret."""
    jvm = java_of(spark)
    conf = jvm.org.apache.spark.SparkConf(False).set("spark.rpc.askTimeout", "10s")
    manager = jvm.org.apache.spark.SecurityManager
    defaults = [getattr(manager, f"$lessinit$greater$default${place}")() for place in (2, 3)]
    security = manager(conf, *defaults)
    create = jvm.org.apache.spark.rpc.RpcEnv.create
    environment = create("stranger", "127.0.0.1", 0, conf, security, True)
    yield environment
    environment.shutdown()


def test_the_driver_refuses_connections_without_its_secret(spark: Session, stranger: Any) -> None:
    port = driver_of(spark).rpcEnv().address().port()
    driver = java_of(spark).org.apache.spark.rpc.RpcAddress("127.0.0.1", port)

    with pytest.raises(Py4JJavaError) as refused:
        stranger.setupEndpointRef(driver, "HeartbeatReceiver")

    assert "Expected SaslMessage" in str(refused.value)
    assert spark.range(1_000).count() == 1_000


def test_everything_that_a_local_spark_opens_listens_on_loopback(spark: Session) -> None:
    connections = process_of(spark).net_connections()
    listening = [it for it in connections if it.status == psutil.CONN_LISTEN]

    assert listening
    assert {it.laddr.ip.removeprefix("::ffff:") for it in listening} == {"127.0.0.1"}


def test_temporary_files_of_a_local_spark_are_for_its_user_only(spark: Session) -> None:
    folders = driver_of(spark).blockManager().diskBlockManager().localDirs()

    assert {stat.S_IMODE(Path(str(it)).stat().st_mode) for it in folders} == {0o700}


def test_what_a_local_spark_writes_is_for_its_user_only(spark: Session, tmp_path: Path) -> None:
    spark.range(1).write.parquet(str(tmp_path / "rows"))
    files = [*(tmp_path / "rows").iterdir()]

    assert files
    assert stat.S_IMODE((tmp_path / "rows").stat().st_mode) == 0o700
    assert {stat.S_IMODE(it.stat().st_mode) for it in files} == {0o600}


def test_the_secret_is_not_in_the_list_of_processes(spark: Session) -> None:
    secret = driver_of(spark).securityManager().getSecretKey()

    assert len(secret) >= 32
    assert secret not in " ".join(process_of(spark).cmdline())
