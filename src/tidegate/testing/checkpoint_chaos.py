"""A run with many checkpoints, in a process that may be killed at any time.

    python -m tidegate.testing.checkpoint_chaos PIPELINE --run NAME --data DIR --out DIR …

The scenario delivers half of the chunks and takes a checkpoint; starts one that times out and is
aborted; delivers the rest, takes an unaligned checkpoint and an aligned one; restores the unaligned
one, takes another and ends the run. Running the same command again continues the scenario.
The content and commit time of each checkpoint are recorded: each later read, after any crash, must
return the same.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

import msgspec
from pyarrow import parquet

from tidegate.checkpoint import Checkpoints, CheckpointState
from tidegate.errors import (
    ChaosFailed,
    CheckpointAborted,
    CheckpointUnderWay,
    UnknownCheckpoint,
)
from tidegate.pipeline import Pipeline
from tidegate.runtime.deployment import Deployment, open_deployment
from tidegate.runtime.ingestion.folder_run import chunks_in
from tidegate.runtime.service import PipelineService, serve
from tidegate.spark import session_on
from tidegate.store import RunState
from tidegate.store.checkpoints import checkpoints as checkpoint_store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tidegate.dataflow import Batch
    from tidegate.runtime.checkpoints.client import CheckpointResults

PIPELINES = "tidegate.pipelines"
BOUND = 240.0
"""Seconds for a checkpoint, and for the end of the run."""
PATIENCE = 1200.0
"""Seconds: a checkpoint outlives several restarts of its process on a slow machine."""
WAITING = Checkpoints(
    pause=0.0,
    tolerated=None,
    retained=1000,
    alignment=PATIENCE,
    acknowledgement=PATIENCE,
    commit=PATIENCE,
)
TIMING_OUT = Checkpoints(pause=0.0, tolerated=None, retained=1000, acknowledgement=0.0)


@dataclass(frozen=True)
class RecordedCheckpoint:
    """The content of a checkpoint when it was first read."""

    id: str
    triggered_at: str
    seconds: float
    """From the trigger to the commit."""
    rows: dict[str, str]
    """By sink the SHA-256 of its rows, in an order that depends on them alone."""


@dataclass(frozen=True)
class CheckpointScenario:
    """One run of a pipeline that this process serves."""

    service: PipelineService
    deployment: Deployment
    run: str
    chunks: Mapping[str, Sequence[Path]]
    records: Path

    def run_to_end(self) -> dict[str, list[Batch]]:
        """Continue the run to its end and return the results."""
        server = self.service.server
        found = server.find(self.run) or server.begin(self.run, checkpoints=WAITING)
        self.check()
        if found.state is RunState.OPEN:
            self._configure(WAITING)
            for stage in (
                self._deliver_half,
                self._abort_one,
                self._deliver_rest,
                self._restore,
                self._checkpoint,
            ):
                self._run_once(stage.__name__, stage)
            server.end(self.run)
        results = server.wait(self.run, BOUND)
        self.check()
        return results

    def _run_once(self, name: str, stage: Callable[[], None]) -> None:
        """Skip a stage that is done; repeating it would be harmless but slow."""
        file = self.records / f"done{name}"
        if not file.exists():
            stage()
            file.touch()

    # ── stages ──

    def _deliver_half(self) -> None:
        """A source with one chunk is ended, if other sources have more chunks."""
        longest = max(map(len, self.chunks.values()))
        for source, files in self.chunks.items():
            self._deliver(source, files[: (len(files) + 1) // 2])
            if len(files) == 1 < longest:
                self.service.server.end(self.run, source)
        self._checkpoint()

    def _deliver_rest(self) -> None:
        for source, files in self.chunks.items():
            self._deliver(source, files)
        self._take(unaligned=True)
        self._checkpoint()

    def _abort_one(self) -> None:
        self._configure(TIMING_OUT)
        with suppress(CheckpointAborted, CheckpointUnderWay):
            number = self.service.server.checkpoints.begin(self.run)
            self.service.server.checkpoints.wait(self.run, number, BOUND)
        self._configure(WAITING)

    def _restore(self) -> None:
        """Restore the first unaligned checkpoint, unless that was done."""
        server = self.service.server
        if server.known(self.run).incarnation == 1:
            server.restore(self.run, self._target)
        self.check()

    def _checkpoint(self) -> None:
        self._record(self.service.server.checkpoints.read(self.run, self._take()))

    def _take(self, *, unaligned: bool = False) -> int:
        """Take a checkpoint of this kind; one that is under way may be of the other kind."""
        server = self.service.server
        while True:
            try:
                number = server.checkpoints.begin(self.run, unaligned=unaligned)
            except CheckpointUnderWay as other:
                number = other.number
            with suppress(CheckpointAborted):  # started with TIMING_OUT
                taken = server.checkpoints.taken(self.run, number, BOUND)
                if taken.is_aligned is not unaligned:
                    return number

    # ── actions ──

    def _deliver(self, source: str, files: Sequence[Path]) -> None:
        for number, file in enumerate(files, 1):
            self.service.server.deliver(self.run, source, number, str(file))

    def _configure(self, checkpoints: Checkpoints) -> None:
        known = self.service.server.known(self.run)
        self.deployment.database.transact(
            partial(checkpoint_store.set_checkpoints, run=known, checkpoints=checkpoints)
        )

    # ── records ──

    def check(self) -> None:
        """Raise `ChaosFailed` unless every checkpoint reads as recorded."""
        for file in sorted(self.records.glob("checkpoint-*")):
            number = int(file.name.removeprefix("checkpoint-"))
            recorded = msgspec.json.decode(file.read_bytes(), type=RecordedCheckpoint)
            try:
                now = self._recorded(self.service.server.checkpoints.read(self.run, number))
            except UnknownCheckpoint:
                self._check_discarded(number)
            else:
                if now != recorded:
                    raise ChaosFailed("none", f"checkpoint {number} was {recorded}, and is {now}")

    def _record(self, checkpoint: CheckpointResults) -> None:
        file, draft = self.records / f"checkpoint-{checkpoint.number}", self.records / "draft"
        if not file.exists():
            draft.write_bytes(msgspec.json.encode(self._recorded(checkpoint)))
            draft.rename(file)
        self.check()

    def _recorded(self, checkpoint: CheckpointResults) -> RecordedCheckpoint:
        checkpoints = self.service.server.checkpoints.all(self.run)
        (taken,) = [each for each in checkpoints if each.number == checkpoint.number]
        rows = {sink: self._digest(batches) for sink, batches in checkpoint.results.items()}
        return RecordedCheckpoint(
            str(taken.id), taken.triggered_at.isoformat(), taken.seconds, rows
        )

    def _digest(self, batches: Sequence[Batch]) -> str:
        files = [Path(self.deployment.root, file) for batch in batches for file in batch.files]
        rows = sorted(repr(row) for file in files for row in parquet.read_table(file).to_pylist())
        return sha256("\n".join(rows).encode()).hexdigest()

    @property
    def _target(self) -> int:
        """The checkpoint to restore: the first unaligned one."""
        checkpoints = self.service.server.checkpoints.all(self.run)
        committed = (each for each in checkpoints if each.state is CheckpointState.COMMITTED)
        return next(each.number for each in committed if not each.is_aligned)

    def _check_discarded(self, number: int) -> None:
        """Only checkpoints after the restored one may be discarded."""
        was_restored = self.service.server.known(self.run).incarnation > 1
        if not was_restored or number <= self._target:
            raise ChaosFailed("none", f"checkpoint {number} is missing")


def main(arguments: Sequence[str]) -> None:
    """Run the scenario to its end and write the results as `tidegate run` does."""
    options = _parse_options(arguments)
    pipeline = _pipeline(options.pipeline)
    records = options.deployment / "records"
    records.mkdir(parents=True, exist_ok=True)
    with (
        open_deployment(options.deployment) as deployment,
        session_on() as session,
        serve(deployment, pipeline, session, options.shards) as service,
    ):
        chunks = chunks_in(options.data, pipeline)
        results = CheckpointScenario(service, deployment, options.run, chunks, records).run_to_end()
        for sink, batches in results.items():
            schema = service.schema_of(sink)
            service.server.write_csv(batches, schema, options.out / f"{sink}.csv")


def _parse_options(arguments: Sequence[str]) -> Namespace:
    parser = ArgumentParser(prog="python -m tidegate.testing.checkpoint_chaos")
    parser.add_argument("pipeline")
    parser.add_argument("--run", required=True)
    for folder in ("--data", "--out", "--deployment"):
        parser.add_argument(folder, type=Path, required=True)
    parser.add_argument("--shards", type=int)
    return parser.parse_args(arguments)


def _pipeline(name: str) -> Pipeline:
    """Load a registered pipeline, or `package.module:attribute`."""
    registered = {point.name: point.value for point in entry_points(group=PIPELINES)}
    found = resolve_name(registered.get(name, name))
    assert isinstance(found, Pipeline), f"{name} is not a pipeline"
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
