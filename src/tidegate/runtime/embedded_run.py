"""`pipeline.run(**sources)`: one run in this process, on a deployment that needs no set-up."""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from tidegate.errors import SourceNotGiven, UnknownSource
from tidegate.runtime.deployment import open_deployment
from tidegate.spark import active_session, open_session

if TYPE_CHECKING:
    from tidegate.pipeline import Pipeline
    from tidegate.runtime.results import Results
    from tidegate.runtime.run import Run

RUN = "run"


def run_pipeline(pipeline: Pipeline, sources: Mapping[str, object]) -> Results:
    """Run a pipeline over data that is at hand and return the results of all sinks.

    The files of the results are removed when this process ends; the Spark session stays open.
    """
    _check(pipeline, sources)
    folder = Path(mkdtemp(prefix="tidegate-run-"))
    atexit.register(rmtree, folder, ignore_errors=True)
    session = active_session() or open_session()
    with (
        open_deployment(folder) as deployment,
        deployment.serve(pipeline, session) as service,
    ):
        run = service.start(RUN)
        for source, data in sources.items():
            _put(run, source, data)
            run.end(source)
        return run.result()


def _check(pipeline: Pipeline, sources: Mapping[str, object]) -> None:
    for source in sources:
        if source not in pipeline.sources:
            raise UnknownSource(source=source, known=", ".join(pipeline.sources))
    missing = [source for source in pipeline.sources if source not in sources]
    if missing:
        raise SourceNotGiven(", ".join(missing))


def _put(run: Run, source: str, data: object) -> None:
    """A list or tuple is several chunks."""
    for chunk in data if isinstance(data, list | tuple) else (data,):
        run.put(source, chunk)
