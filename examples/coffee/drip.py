"""`tidegate demo drip`: the coffee pipeline as a continuous run with checkpoints.

Chunks arrive one by one, and the run takes a checkpoint every five seconds. All results of a
checkpoint are consistent: the sum of Q3 is that of the transactions up to some chunk, computed here
without Spark. Half-way the run is restored to an earlier checkpoint and continues from there. Its
final results equal those of plain Spark.
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
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING

from rich.console import Console

import tidegate as tg
from tidegate_examples.coffee import pipeline
from tidegate_examples.coffee.data import Size, write
from tidegate_examples.coffee.demo.answers import differing, plain_answers
from tidegate_examples.demo_output import DemoOutput

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUN = "today"
SIZE = Size(40_000, files=20)
PAUSE = 2.0
"""Seconds between two chunks of each large source."""
CHECKPOINTS = tg.Checkpoints(every=5.0, retained=100)
LARGE = ("transactions", "transaction_items")
RESTORE_AFTER = 3
RESTORED = 2
"""The number of the checkpoint that is restored, once `RESTORE_AFTER` is committed."""
BOUND = 300.0


@dataclass
class DripDemo:
    """One run, its chunks, and the checkpoints that were checked."""

    run: tg.Run
    output: DemoOutput
    chunks: Mapping[str, Sequence[Path]]
    checked: set[int] = field(default_factory=set)
    stopped: Event = field(default_factory=Event)
    was_restored: bool = False

    def deliver(self) -> None:
        """Deliver all chunks, those of large sources one by one."""
        for source in self.chunks.keys() - set(LARGE):
            self.run.put(source, self.chunks[source][0], chunk=1)
            self.run.end(source)
        for at in range(SIZE.files):
            for source in LARGE:
                self.run.put(source, self.chunks[source][at], chunk=at + 1)
            if self.stopped.wait(PAUSE):
                return

    def check_checkpoints(self, delivery: Future[None]) -> None:
        """Check every checkpoint, until everything was delivered and the run was restored."""
        sums = [*accumulate(map(daytime_amount, self.chunks["transactions"]), initial=Decimal(0))]
        started = monotonic()
        while not (delivery.done() and self.was_restored):
            if monotonic() - started > BOUND:
                raise SystemExit(f"only {len(self.checked)} checkpoints in {BOUND:g} s")
            for checkpoint in self.run.checkpoints():
                if checkpoint.state.value == "committed" and checkpoint.number not in self.checked:
                    self.checked.add(checkpoint.number)
                    self._check(checkpoint.number, checkpoint.seconds, sums)
            self.stopped.wait(0.2)
        delivery.result()

    def _check(self, number: int, seconds: float, sums: Sequence[Decimal]) -> None:
        results = self.run.result(checkpoint=number)
        amounts = results["q3"].to_arrow().column("tpv").to_pylist()
        total = sum(filter(None, amounts), Decimal(0))
        if total not in sums:
            raise SystemExit(f"checkpoint {number}: no number of chunks has the Q3 sum {total}")
        rows = ", ".join(f"{sink} {result.rows:,}" for sink, result in results.items())
        self.output.line(
            f"checkpoint {number}: {sums.index(total)} of {SIZE.files} chunks,"
            f" Q3 sum {total:,} equals that of the chunks",
            f"taken in {seconds:.1f} s; rows: {rows}",
            style="green",
        )
        if number >= RESTORE_AFTER and not self.was_restored:
            self._restore()

    def _restore(self) -> None:
        self.was_restored = True
        self.run.restore(RESTORED)
        message = f"restored checkpoint {RESTORED}; later chunks are processed again"
        self.output.line(message, style="yellow")

    def finish(self, session: SparkSession) -> None:
        """End the run and compare its results with plain Spark."""
        self.run.end()
        self.output.line("all chunks are delivered; the run ends")
        results = {
            sink: [tuple(row) for row in result.to_df().collect()]
            for sink, result in self.run.result(BOUND).items()
        }
        files = {source: [str(file) for file in paths] for source, paths in self.chunks.items()}
        wrong = differing(results, plain_answers(session, files))
        if wrong:
            raise SystemExit(f"{', '.join(wrong)}: different from plain Spark")
        self.output.line(
            f"all {len(results)} results equal those of plain Spark;"
            f" {len(self.checked)} checkpoints before had consistent results"
        )


def daytime_amount(file: Path) -> Decimal:
    """The sum of the transactions of a chunk that Q3 selects, without Spark."""
    rows = csv.DictReader(StringIO(file.read_text()))
    return sum((Decimal(row["final_amount"] or 0) for row in rows if _is_in_q3(row)), Decimal(0))


def _is_in_q3(row: Mapping[str, str]) -> bool:
    is_daytime = "06:00:00" <= row["created_at"][11:19] <= "23:00:00"
    return bool(row["store_id"]) and row["created_at"][:4] in {"2024", "2025"} and is_daytime


def main() -> None:
    """Run the demo and print its progress."""
    logging.basicConfig(level=logging.ERROR)  # the demo prints what the warnings would
    output = DemoOutput(Console())
    with output.live(), _demo(output) as (demo, session), ThreadPoolExecutor(1) as pool:
        output.line(
            f"run {RUN!r} starts: a chunk of each large source every {PAUSE:g} s,"
            f" a checkpoint every {CHECKPOINTS.every:g} s"
        )
        try:
            demo.check_checkpoints(pool.submit(demo.deliver))
        finally:
            demo.stopped.set()
        demo.finish(session)


@contextmanager
def _demo(output: DemoOutput) -> Iterator[tuple[DripDemo, SparkSession]]:
    output.line("starting Spark and an embedded PostgreSQL in a temporary folder …")
    with (
        TemporaryDirectory(prefix="tidegate-drip-", ignore_cleanup_errors=True) as name,
        tg.connect(Path(name) / "deployment") as deployment,
        tg.session_on() as session,
        deployment.serve(pipeline, session) as service,
    ):
        data = Path(name) / "data"
        write(data, SIZE, seed=11)
        chunks = {source: sorted((data / source).glob("*.csv")) for source in pipeline.sources}
        run = service.start(RUN, checkpoints=CHECKPOINTS)
        yield DripDemo(run, output, chunks), session
