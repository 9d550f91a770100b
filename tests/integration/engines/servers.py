"""Connect servers in processes of their own: Spark's, and Sail, which is not Spark."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.integration.engines.cluster import BOUNDED, SPARK_HOME, STARTED, Cluster, environment
from tests.waiting import wait_until

_SPARK = "org.apache.spark.sql.connect.service.SparkConnectServer"
_SPARK_AT = re.compile(r"Spark Connect server started at: \S*?:(\d+)")
_SAIL_AT = re.compile(r"LISTENING (\d+)")
_SAIL = """
import sys
from pysail.spark import SparkConnectServer

server = SparkConnectServer("127.0.0.1", 0)
server.start(background=True)
print("LISTENING", server.listening_address[1], flush=True)
sys.stdin.read()  # until whoever started it is gone
server.stop()
"""


@contextmanager
def running_connect_server(
    cluster: Cluster, settings: Mapping[str, str], log: Path
) -> Iterator[str]:
    """Where Spark's own server listens, whose driver is not in the process of its clients."""
    given = {**settings, "spark.connect.grpc.binding.port": "0", "spark.ui.enabled": "false"}
    options = [word for name, value in given.items() for word in ("--conf", f"{name}={value}")]
    submit = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", cluster.url, "--class", _SPARK]
    with _running([*submit, *options, "spark-internal"], log, _SPARK_AT, cluster.secret) as port:
        yield f"sc://127.0.0.1:{port}"


@contextmanager
def running_sail(log: Path) -> Iterator[str]:
    """Where Sail listens; skips the test where it is not installed."""
    if find_spec("pysail") is None:
        pytest.skip("pysail is not installed: pip install 'tidegate[sail]'")
    with _running([sys.executable, "-c", _SAIL], log, _SAIL_AT) as port:
        yield f"sc://127.0.0.1:{port}"


@contextmanager
def _running(
    command: list[str],
    log: Path,
    listening: re.Pattern[str],
    more: Mapping[str, str] | None = None,
) -> Iterator[str]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*BOUNDED, *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env={**environment(memory="1g"), **(more or {})},
            cwd=log.parent,
            start_new_session=True,
        )

    def port() -> str | None:
        log_text = log.read_text(errors="replace")
        assert process.poll() is None, log_text
        found = listening.search(log_text)
        return found.group(1) if found else None

    try:
        wait_until(lambda: port() is not None, STARTED)
        yield str(port())
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
