"""`tidegate demo drip`: the four questions of a day that is not over.

Chunks drip in, one of each large source at a time, and the run is cut every five seconds. All
answers of a cut belong together: what Q3 adds up to is what the transactions came to that had been
admitted up to that cut, computed here by other means. Half-way the run goes back to an earlier cut
and on from there. In the end its answers are what plain Spark gives.
"""

from __future__ import annotations

import csv
import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING

from pyarrow import parquet
from rich.console import Console

from tidegate.checkpoint import Checkpoints
from tidegate.runtime.deployment import Deployment, open_deployment
from tidegate.runtime.service import PipelineService, serve
from tidegate.spark import Session, session_on
from tidegate_examples.coffee import pipeline
from tidegate_examples.coffee.data import Size, write
from tidegate_examples.coffee.demo.answers import differing, plain_answers, released_answers
from tidegate_examples.demo_output import DemoOutput

if TYPE_CHECKING:
    from tidegate.runtime.checkpoints.client import CheckpointResults
    from tidegate.store.checkpoints.checkpoints import Checkpoint

RUN = "today"
SIZE = Size(40_000, files=20)
PAUSE = 2.0
"""Seconds between two chunks of each large source."""
CHECKPOINTS = Checkpoints(every=5.0, retained=100)
LARGE = ("transactions", "transaction_items")
GOES_BACK_AT = 3
GOES_BACK_TO = 2
"""The cut at which the run goes back, and whereto."""
BOUND = 300.0


@dataclass
class Till:
    """One run, whoever delivers to it, and what was seen of it."""

    service: PipelineService
    place: Deployment
    session: Session
    output: DemoOutput
    chunks: Mapping[str, Sequence[Path]]
    seen: set[int] = field(default_factory=set)
    stopped: Event = field(default_factory=Event)
    has_gone_back: bool = False

    def drip(self) -> None:
        """Deliver everything, little by little."""
        server = self.service.server
        for source in self.chunks.keys() - set(LARGE):
            server.deliver(RUN, source, 1, str(self.chunks[source][0]))
            server.end(RUN, source)
        for at in range(SIZE.files):
            for source in LARGE:
                server.deliver(RUN, source, at + 1, str(self.chunks[source][at]))
            if self.stopped.wait(PAUSE):
                return

    def watch(self, dripping: Future[None]) -> None:
        """Look at every cut, until everything was delivered and the run has been back."""
        started = monotonic()
        while not (dripping.done() and self.has_gone_back):
            if monotonic() - started > BOUND:
                raise SystemExit(f"{len(self.seen)} cuts were taken in {BOUND:g} s")
            for checkpoint in self._new():
                self._look(checkpoint)
            self.stopped.wait(0.2)
        dripping.result()

    def _new(self) -> Iterator[Checkpoint]:
        for it in self.service.server.checkpoints.all(RUN):
            if it.state.value == "committed" and it.number not in self.seen:
                self.seen.add(it.number)
                yield it

    def _look(self, taken: Checkpoint) -> None:
        checkpoint = self.service.server.checkpoints.read(RUN, taken.number)
        chunks = int(checkpoint.manifest["sources"]["transactions"]["chunks"])
        ours = self._volume(checkpoint)
        theirs = sum(map(daytime_amount, self.chunks["transactions"][:chunks]), Decimal(0))
        if ours != theirs:
            raise SystemExit(
                f"checkpoint {checkpoint.number}: Q3 adds up to {ours}, and should to {theirs}"
            )
        rows = {sink: sum(it.rows for it in its) for sink, its in checkpoint.results.items()}
        told = ", ".join(f"{sink} {count:,}" for sink, count in rows.items())
        self.output.line(
            f"checkpoint {checkpoint.number}: {chunks} of {SIZE.files} chunks,"
            f" Q3 adds up to {ours:,} as they do",
            f"taken in {taken.seconds:.1f} s; rows: {told}",
            style="green",
        )
        if checkpoint.number >= GOES_BACK_AT and not self.has_gone_back:
            self._go_back()

    def _go_back(self) -> None:
        self.has_gone_back = True
        self.service.server.restore(RUN, GOES_BACK_TO)
        said = f"the run goes back to checkpoint {GOES_BACK_TO}"
        self.output.line(f"{said}; what came behind it comes again by itself", style="yellow")

    def _volume(self, checkpoint: CheckpointResults) -> Decimal:
        total = Decimal(0)
        for batch in checkpoint.results["q3"]:
            for file in batch.files:
                table = parquet.read_table(Path(self.place.root, file), columns=["tpv"])
                total += sum(filter(None, table.column("tpv").to_pylist()), Decimal(0))
        return total

    def finish(self) -> None:
        """End the run and compare its answers."""
        self.service.server.end(RUN)
        self.output.line("the day is over: no more chunks come")
        results = self.service.server.wait(RUN, BOUND)
        ours = released_answers(self.session, self.place.root, results)
        files = {source: [str(file) for file in its] for source, its in self.chunks.items()}
        wrong = differing(ours, plain_answers(self.session, files))
        if wrong:
            raise SystemExit(f"{', '.join(wrong)}: not what plain Spark gives")
        shown = len(self.seen)
        self.output.line(
            f"all {len(ours)} answers are what plain Spark gives; {shown} cuts were shown before,"
            " each with answers that belong together"
        )


def daytime_amount(file: Path) -> Decimal:
    """What the transactions of a chunk come to that Q3 asks about, without Spark."""
    rows = csv.DictReader(StringIO(file.read_text()))
    return sum((Decimal(row["final_amount"] or 0) for row in rows if _is_asked(row)), Decimal(0))


def _is_asked(row: Mapping[str, str]) -> bool:
    is_daytime = "06:00:00" <= row["created_at"][11:19] <= "23:00:00"
    return bool(row["store_id"]) and row["created_at"][:4] in {"2024", "2025"} and is_daytime


def main() -> None:
    """Run the demo and say what happens."""
    logging.basicConfig(level=logging.ERROR)  # the demo tells what the warnings would
    output = DemoOutput(Console())
    with output.live(), _till(output) as till, ThreadPoolExecutor(1) as pool:
        till.service.server.begin(RUN, checkpoints=CHECKPOINTS)
        every = (
            f"a chunk of each large source every {PAUSE:g} s, a cut every {CHECKPOINTS.every:g} s"
        )
        till.output.line(f"run {RUN!r} begins: {every}")
        try:
            till.watch(pool.submit(till.drip))
        finally:
            till.stopped.set()
        till.finish()


@contextmanager
def _till(output: DemoOutput) -> Iterator[Till]:
    output.line("starting Spark and an embedded PostgreSQL, in a folder that goes with the demo …")
    with (
        TemporaryDirectory(prefix="tidegate-drip-", ignore_cleanup_errors=True) as name,
        open_deployment(Path(name) / "deployment") as place,
        session_on() as session,
        serve(place, pipeline, session) as service,
    ):
        data = Path(name) / "data"
        write(data, SIZE, seed=11)
        chunks = {source: sorted((data / source).glob("*.csv")) for source in pipeline.sources}
        yield Till(service, place, session, output, chunks)
