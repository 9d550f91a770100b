"""A run that is cut again and again, by a process that may die at any moment.

    python -m tidegate.testing.checkpoint_chaos PIPELINE --run NAME --data DIR --out DIR …

Half of the chunks are delivered, and a cut is taken; a checkpoint is begun that nobody can be quick
enough for, and is given up; the rest is delivered, and one is taken that waits for nothing of it,
and then another cut. Then the run goes back to the one that did not wait, is cut once more and
ends. The same command given again goes on where it was.
What was read of a cut is written down, with when it was committed: whoever reads it again, after
whatever has happened, must find the same.
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
"""Seconds for a cut, and for the end."""
PATIENT = Checkpoints(pause=0.0, tolerated=None, retained=1000)
IMPATIENT = Checkpoints(pause=0.0, tolerated=None, retained=1000, acknowledgement=0.0)


@dataclass(frozen=True)
class Seen:
    """What was read of a cut."""

    id: str
    triggered_at: str
    seconds: float
    """From there until it was committed."""
    rows: dict[str, str]
    """By sink the SHA-256 of its rows, in an order that depends on them alone."""


@dataclass(frozen=True)
class Trip:
    """One run through a pipeline that is served here."""

    service: PipelineService
    place: Deployment
    run: str
    chunks: Mapping[str, Sequence[Path]]
    notes: Path

    def go(self) -> dict[str, list[Batch]]:
        """To the end, from wherever it is: what the sinks gave."""
        server = self.service.server
        found = server.find(self.run) or server.begin(self.run, checkpoints=PATIENT)
        self.check()
        if found.state is RunState.OPEN:
            self._be(PATIENT)
            for stop in (
                self._half,
                self._give_one_up,
                self._rest,
                self._go_back,
                self._checkpoint,
            ):
                self._once(stop.__name__, stop)
            server.end(self.run)
        results = server.wait(self.run, BOUND)
        self.check()
        return results

    def _once(self, name: str, stop: Callable[[], None]) -> None:
        """Nothing breaks when it is done twice; it takes time."""
        note = self.notes / f"done{name}"
        if not note.exists():
            stop()
            note.touch()

    # ── the stops ──

    def _half(self) -> None:
        """A source with one chunk is over with it, if others have more to come."""
        longest = max(map(len, self.chunks.values()))
        for source, files in self.chunks.items():
            self._deliver(source, files[: (len(files) + 1) // 2])
            if len(files) == 1 < longest:
                self.service.server.end(self.run, source)
        self._checkpoint()

    def _rest(self) -> None:
        for source, files in self.chunks.items():
            self._deliver(source, files)
        self._settled(unaligned=True)
        self._checkpoint()

    def _give_one_up(self) -> None:
        self._be(IMPATIENT)
        with suppress(CheckpointAborted, CheckpointUnderWay):
            number = self.service.server.checkpoints.begin(self.run)
            self.service.server.checkpoints.wait(self.run, number, BOUND)
        self._be(PATIENT)

    def _go_back(self) -> None:
        """To the first cut that did not wait, unless the run has been there."""
        server = self.service.server
        if server.known(self.run).incarnation == 1:
            server.restore(self.run, self._target)
        self.check()

    def _checkpoint(self) -> None:
        self._note(self.service.server.checkpoints.read(self.run, self._settled()))

    def _settled(self, *, unaligned: bool = False) -> int:
        """Take a checkpoint; one that is under way may be of another kind."""
        server = self.service.server
        while True:
            try:
                number = server.checkpoints.begin(self.run, unaligned=unaligned)
            except CheckpointUnderWay as other:
                number = other.number
            with suppress(CheckpointAborted):  # one that was begun impatiently
                taken = server.checkpoints.taken(self.run, number, BOUND)
                if taken.is_aligned is not unaligned:
                    return number

    # ── what is done there ──

    def _deliver(self, source: str, files: Sequence[Path]) -> None:
        for number, file in enumerate(files, 1):
            self.service.server.deliver(self.run, source, number, str(file))

    def _be(self, checkpoints: Checkpoints) -> None:
        known = self.service.server.known(self.run)
        self.place.database.transact(
            partial(checkpoint_store.set_checkpoints, run=known, checkpoints=checkpoints)
        )

    # ── what was seen ──

    def check(self) -> None:
        """Raise `ChaosFailed` unless every cut reads as it did."""
        for note in sorted(self.notes.glob("cut-*")):
            number = int(note.name.removeprefix("cut-"))
            seen = msgspec.json.decode(note.read_bytes(), type=Seen)
            try:
                now = self._seen(self.service.server.checkpoints.read(self.run, number))
            except UnknownCheckpoint:
                self._expect_to_be_gone(number)
            else:
                if now != seen:
                    raise ChaosFailed("none", f"cut {number} was {seen}, and is {now}")

    def _note(self, checkpoint: CheckpointResults) -> None:
        note, draft = self.notes / f"cut-{checkpoint.number}", self.notes / "draft"
        if not note.exists():
            draft.write_bytes(msgspec.json.encode(self._seen(checkpoint)))
            draft.rename(note)
        self.check()

    def _seen(self, checkpoint: CheckpointResults) -> Seen:
        every = self.service.server.checkpoints.all(self.run)
        (it,) = [each for each in every if each.number == checkpoint.number]
        rows = {sink: self._digest(batches) for sink, batches in checkpoint.results.items()}
        return Seen(str(it.id), it.triggered_at.isoformat(), it.seconds, rows)

    def _digest(self, batches: Sequence[Batch]) -> str:
        files = [Path(self.place.root, file) for batch in batches for file in batch.files]
        rows = sorted(repr(row) for file in files for row in parquet.read_table(file).to_pylist())
        return sha256("\n".join(rows).encode()).hexdigest()

    @property
    def _target(self) -> int:
        """The cut that the run goes back to."""
        every = self.service.server.checkpoints.all(self.run)
        taken = (it for it in every if it.state is CheckpointState.COMMITTED)
        return next(it.number for it in taken if not it.is_aligned)

    def _expect_to_be_gone(self, number: int) -> None:
        """Only a cut behind the one that the run went back to may be."""
        has_gone_back = self.service.server.known(self.run).incarnation > 1
        if not has_gone_back or number <= self._target:
            raise ChaosFailed("none", f"cut {number} is gone")


def main(arguments: Sequence[str]) -> None:
    """Go the whole way and write the results, as `tidegate run` does."""
    asked = _asked(arguments)
    pipeline = _pipeline(asked.pipeline)
    notes = asked.deployment / "notes"
    notes.mkdir(parents=True, exist_ok=True)
    with (
        open_deployment(asked.deployment) as place,
        session_on() as session,
        serve(place, pipeline, session, asked.shards) as service,
    ):
        chunks = chunks_in(asked.data, pipeline)
        results = Trip(service, place, asked.run, chunks, notes).go()
        for sink, batches in results.items():
            schema = service.schema_of(sink)
            service.server.write_csv(batches, schema, asked.out / f"{sink}.csv")


def _asked(arguments: Sequence[str]) -> Namespace:
    parser = ArgumentParser(prog="python -m tidegate.testing.checkpoint_chaos")
    parser.add_argument("pipeline")
    parser.add_argument("--run", required=True)
    for folder in ("--data", "--out", "--deployment"):
        parser.add_argument(folder, type=Path, required=True)
    parser.add_argument("--shards", type=int)
    return parser.parse_args(arguments)


def _pipeline(name: str) -> Pipeline:
    """A registered one, or `package.module:attribute`."""
    registered = {point.name: point.value for point in entry_points(group=PIPELINES)}
    found = resolve_name(registered.get(name, name))
    assert isinstance(found, Pipeline), f"{name} is no pipeline"
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
