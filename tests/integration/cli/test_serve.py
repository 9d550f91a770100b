"""`tidegate serve` listens before Spark has started."""

from __future__ import annotations

import json
import signal
from contextlib import AbstractContextManager
from http.client import HTTPConnection
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.integration.http.test_killed import free_port
from tidegate import spark
from tidegate.cli import app
from tidegate.errors import SparkUnavailable
from tidegate.spark import Session


def health(port: int) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", "/health")
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())["status"]
    finally:
        connection.close()


def test_a_server_answers_while_spark_starts(
    deployment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[tuple[int, str]] = []
    port = free_port()

    def slow(master: str) -> AbstractContextManager[Session]:
        answers.append(health(port))
        raise SparkUnavailable(master, "it is slow", "wait")

    monkeypatch.setattr(spark, "session_on", slow)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    pipeline = "tests.integration.http.declared:pipeline"
    command = ["serve", pipeline, "--deployment", str(deployment), "--listen", f"127.0.0.1:{port}"]
    ended = CliRunner().invoke(app, command)
    assert answers == [(503, "starting")], ended.output
    assert ended.exit_code == 1
