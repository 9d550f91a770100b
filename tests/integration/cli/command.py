"""The command line of a deployment, for tests beside the process that serves it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from tests.integration.runtime.shop import Client
from tidegate.cli import app
from tidegate.runtime.service import PipelineService
from tidegate.store import Database

DECLARED = "tests.integration.http.declared:pipeline"


class Command:
    """The command line of the deployment."""

    def __init__(self, folder: Path, database: Database) -> None:
        self._where = ["--deployment", str(folder), "--database", database.url]

    def __call__(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments, *self._where])

    def json(self, *arguments: str) -> Any:
        answer = self(*arguments, "--json")
        assert answer.exit_code == 0, answer.output
        return json.loads(answer.stdout)

    def error(self, *arguments: str) -> tuple[int, str]:
        answer = self(*arguments, "--json")
        return answer.exit_code, json.loads(answer.stdout)["error"]["condition"]


def dripping(service: PipelineService, name: str, folder: Path) -> Client:
    client = Client(service.server, name, folder)
    client.items(1, (1, "tea"), (2, "rice"))
    client.sales(1, (1, 7), (2, 200))
    return client
