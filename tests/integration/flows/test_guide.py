"""What docs/flows.md shows runs as it stands there, and its table has every option."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidegate.flows import Flow, FlowRun, start_flow
from tidegate.flows.model.options import OPTIONS
from tidegate.flows.worker.worker import flow_worker
from tidegate.runtime.deployment import open_deployment

ROOT = Path(__file__).parents[3]
GUIDE = ROOT / "docs" / "flows.md"


@pytest.fixture
def declared(deployment: Path) -> dict[str, Any]:
    """Everything that the guide declares, after its examples have run."""
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL):
        here = block.replace('"deployment"', repr(str(deployment)))
        exec(compile(here, str(GUIDE), "exec"), names)
    return names


def finished(
    folder: Path, flow: Flow, value: object, step: str, meanwhile: Callable[[FlowRun], None]
) -> Any:
    with open_deployment(folder) as place, flow_worker(place.database, flow):
        run = start_flow(place.database, flow, value)
        meanwhile(run)
        run.wait(60)
        found = run.result(step)
        return found if isinstance(found, str | int) else list(found)


def test_the_examples_of_the_guide_run(declared: dict[str, Any], deployment: Path) -> None:
    assert declared["text"] == "3 orders, 80"
    assert declared["prices"] == [30, 50]
    assert declared["failed"]["price"] == 1

    def give(run: FlowRun) -> None:
        run.signal("publish", True, "ann")

    def let_through(run: FlowRun) -> None:
        run.set_state(declared["wanted"], 3, "ann")
        run.set_state(declared["is_open"], True, "ann")

    squares = finished(deployment, declared["crawl"], 3, "discover", lambda *_: None)
    assert squares == [0, 1, 4, 9, 16, 25]
    assert finished(deployment, declared["release"], 7, "publish", give) == "7, True"
    assert finished(deployment, declared["release"], 700, "publish", give) == "100, True"
    assert finished(deployment, declared["copy"], None, "switch", let_through) >= 3


def test_the_guide_names_every_option_and_of_what_it_is() -> None:
    *_, table = GUIDE.read_text().split("## All options")
    told: dict[str, str] = {}
    for names, of in re.findall(r"^\| (`.*?) \| (.*?) \|", table, re.MULTILINE):
        told |= dict.fromkeys(re.findall(r"`(\w+)`", names), of)
    everything = {"all": set(OPTIONS), "all but handler": {*OPTIONS} - {"handler"}}
    found = {name: everything.get(of) or set(of.split(", ")) for name, of in told.items()}
    known = {option for options in OPTIONS.values() for option in options}
    assert found == {
        option: {name for name, options in OPTIONS.items() if option in options} for option in known
    }


def test_the_guide_shows_how_to_reach_the_embedded_database(deployment: Path) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (block,) = [block for block in blocks if "programs()" in block]
    here = block.replace(".venv/bin/python", sys.executable).replace("DIR", str(deployment))
    first, second = re.split(r"(?<=url\)')\n", here)

    def said(command: str) -> str:
        asked = ["bash", "-c", command]
        return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()

    with open_deployment(deployment) as place:
        url = said(first)
        assert url == place.database.url
        asked = second.strip().replace(
            "URL", f"'{url}' -Atc 'SELECT count(*) FROM tidegate.flow_run'"
        )
        assert said(asked) == "0"
