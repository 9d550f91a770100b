"""Runs the coffee pipeline on an engine, or only probes the engine, and prints the outcome.

A process has one kind of session, so every test of an engine starts one of these.
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from time import monotonic

from tests.integration.engines.killing import Killer
from tidegate.errors import EngineUnfit, SparkUnavailable, SparkUnprotected
from tidegate.runtime.deployment import open_deployment
from tidegate.runtime.ingestion.folder_run import RunOptions, chunks_in, run_folder
from tidegate.spark import Session, ensure_fit, open_session
from tidegate_examples.coffee import pipeline


@dataclass(frozen=True)
class Asked:
    """What to run on, and where; `root` is the data folder, if not the deployment's own."""

    master: str
    folder: str
    data: str
    root: str | None = None
    settings: dict[str, str] = field(default_factory=dict)
    only_asks: bool = False
    """Whether the engine is asked what it offers, and nothing is run."""
    workers: list[int] = field(default_factory=list)
    """Processes of workers one of whose executors is to be killed in the middle of the run."""


@dataclass
class Came:
    """The digest of every result, or the error that was raised; and how long things took."""

    results: dict[str, str] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    error: str = ""
    complaints: list[dict[str, str]] = field(default_factory=list)
    message: str = ""
    session_seconds: float = 0.0
    job_seconds: float = 0.0
    run_seconds: float = 0.0
    killed: int = 0
    lost_tasks: int = 0


def main(request: Asked) -> Came:
    came = Came()
    began = monotonic()
    try:
        session = open_session(request.master, settings=request.settings)
        came.session_seconds = monotonic() - began
        began = monotonic()
        run(session, request, came)
    except EngineUnfit as error:
        came.complaints = [asdict(it) for it in error.complaints]
        came.error, came.message = error.condition, str(error)
    except (SparkUnavailable, SparkUnprotected) as error:
        came.error, came.message = error.condition, str(error)
    came.run_seconds = monotonic() - began
    return came


def run(session: Session, request: Asked, came: Came) -> None:
    folder = Path(request.folder)
    if request.only_asks:
        root = Path(request.root or folder / "data")
        root.mkdir(parents=True, exist_ok=True)
        ensure_fit(session, str(root), {})
        return
    with (
        open_deployment(folder / "deployment", data=request.root) as place,
        Killer(session, request.workers, Path(place.root))
        if request.workers
        else nullcontext() as it,
    ):
        chunks = chunks_in(Path(request.data), pipeline)
        report = run_folder(pipeline, chunks, folder / "out", session, place, RunOptions())
        came.rows = dict(report.rows_out)
    for file in sorted((folder / "out").glob("*.csv")):
        came.results[file.stem] = sha256(file.read_bytes()).hexdigest()
    if it is not None:
        came.killed, came.lost_tasks = it.killed, it.lost_tasks
    began = monotonic()
    session.range(3).count()
    came.job_seconds = monotonic() - began
    session.stop()


if __name__ == "__main__":
    outcome = main(Asked(**json.loads(sys.argv[1])))
    sys.stdout.write(json.dumps(asdict(outcome)))
