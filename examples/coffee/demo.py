"""`tidegate demo`: three clients of different size ask the four questions at the same time.

Everything is real and in one process: data is generated, the plan is made, its stages run as
Spark jobs, barriers travel with the data and align at every fan-in, and each client's results
are published together when its END has come through all of them. Then the answers are compared
with plain Spark over the same files.
"""

from __future__ import annotations

import logging
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from rich.console import Console
from rich.table import Table

from tidegate.errors import BarrierTimeout, listed
from tidegate.plan import PhysicalBarrier, PhysicalPlan, plan_hash
from tidegate.run import LivePipeline, Receipt, ReceiptState
from tidegate.run.workshop import ResultCollector, SparkWorkshop
from tidegate.signals import BarrierKind, Carrier
from tidegate.spark import Batch, Session, reference, session_on
from tidegate_examples.coffee import pipeline
from tidegate_examples.coffee.data import Size, write

CLIENTS = {
    "corner": Size(2_000, files=1),
    "town": Size(20_000, files=2),
    "chain": Size(100_000, files=3),
}
IMPATIENT = 0.5
"""Seconds after which the demo asks who holds a barrier up; far less than Spark needs."""
EVERY = 10.0
"""Seconds between two lines about clients that are not complete."""
GLANCE = 0.1
SHOWN_ROWS = 5
QUESTIONS = {
    "q1": "the large daytime transactions",
    "q2_best_selling": "what sold most in each month",
    "q2_most_profit": "what earned most in each month",
    "q3": "daytime payments by half-year and store",
    "q4": "the birthdays of each store's three best customers",
}
Rows = list[tuple[object, ...]]


class Teller:
    """Prints one line per thing that happened, with the seconds since the start."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._started = monotonic()

    def tell(self, what: str) -> None:
        """A line with the time."""
        passed = f"[dim]{monotonic() - self._started:6.1f} s[/]"
        self.console.print(f"{passed}  {what}", highlight=False, soft_wrap=True)


@dataclass(frozen=True)
class Client:
    """One client: its run's name and the files it delivers, by source."""

    name: str
    files: Mapping[str, Sequence[str]]

    def deliver(self, live: LivePipeline, workshop: SparkWorkshop) -> Receipt:
        """Every file is a chunk; behind the last one of a source comes its END."""
        for source, files in self.files.items():
            for file in files:
                live.send(source, workshop.chunk(source, file), self.name)
        return live.end(self.name)


def main() -> None:
    """Run the demo and say what happens."""
    logging.basicConfig(level=logging.ERROR)  # the demo tells what the warnings would
    teller = Teller(Console())
    teller.tell("starting Spark in this process …")
    with tempfile.TemporaryDirectory(prefix="tidegate-demo-") as folder, session_on() as session:
        clients = [_client(name, size, Path(folder), teller) for name, size in CLIENTS.items()]
        workshop = SparkWorkshop(pipeline, session, f"{folder}/batches")
        _tell_plan(workshop.plan, teller)
        with workshop.start() as live:
            teller.tell(f"{len(live.processors)} processors are running")
            _run(live, workshop, clients, teller)
            report = live.graceful_close()
        teller.tell(f"closed: {report.how.value}, {report.discarded} messages dropped")
        _compare(session, clients, workshop.results, teller)
        _show(session, workshop.results, teller)
        _tell_what_was_shown(clients, teller)


def _client(name: str, size: Size, folder: Path, teller: Teller) -> Client:
    write(folder / name, size, seed=len(name))
    files = {
        source: sorted(str(file) for file in (folder / name / source).glob("*.csv"))
        for source in pipeline.sources
    }
    chunks = sum(map(len, files.values()))
    teller.tell(f"client {name}: {size.transactions:,} transactions in {chunks} chunks")
    return Client(name, files)


def _tell_plan(plan: PhysicalPlan, teller: Teller) -> None:
    barriers = sum(isinstance(node, PhysicalBarrier) for node in plan.nodes)
    stages = sum(1 for _ in plan.stages)
    known = f"{stages} stages, {barriers} barriers, plan {plan_hash(plan)[:12]}"
    teller.tell(f"pipeline coffee: {known} (tidegate explain coffee shows it)")


def _run(
    live: LivePipeline, workshop: SparkWorkshop, clients: Sequence[Client], teller: Teller
) -> None:
    for client in clients:
        live.begin(client.name)
    receipts = {client.name: client.deliver(live, workshop) for client in clients}
    teller.tell("everything is delivered; each client's END follows its data through the plan")
    _ask_who_holds_it_up(live, teller)
    while receipts:
        _tell_who_is_done(live, receipts, teller)
    if live.error is not None:
        raise live.error


def _tell_who_is_done(live: LivePipeline, receipts: dict[str, Receipt], teller: Teller) -> None:
    """Wait for a while, tell of each client that is done, then say where the others are."""
    deadline = monotonic() + EVERY
    while receipts and monotonic() < deadline:
        for name, receipt in list(receipts.items()):
            if receipt.settled_within(GLANCE):
                del receipts[name]
                if receipt.state is ReceiptState.COLLECTED:
                    teller.tell(f"[green]client {name}: complete[/], all sinks published together")
    at = {name: live.holdup(receipt).held_by for name, receipt in receipts.items()}
    where = "; ".join(
        f"{name} at {listed(stages, most=3)}" for name, stages in at.items() if stages
    )
    if where:
        teller.tell(f"[dim]stages of the plan still at work: {where}[/]")


def _ask_who_holds_it_up(live: LivePipeline, teller: Teller) -> None:
    """A barrier behind the data, with a bound that cannot be kept while Spark works."""
    asked = f"on purpose, a barrier behind all that with a bound of {IMPATIENT} s: who holds it up?"
    teller.tell(asked)
    receipt = live.send_barrier(BarrierKind.SYNC_TEST, Carrier.DATA, timeout=IMPATIENT)
    try:
        receipt.wait()
    except BarrierTimeout as late:
        teller.tell(f"[yellow]{listed(late.held_by)}[/]; the barrier is withdrawn, data flows on")


def _compare(
    session: Session, clients: Sequence[Client], results: ResultCollector, teller: Teller
) -> None:
    """Every result against one plain query over the same files."""
    for client in clients:
        published = results.published[client.name]
        for sink, expected in reference(session, pipeline, client.files).items():
            ours = _rows(session, published[sink])
            if Counter(ours) != Counter(tuple(row) for row in expected.collect()):
                raise SystemExit(f"client {client.name}: {sink} is not what plain Spark gives")
        rows = sum(batch.rows for batches in published.values() for batch in batches)
        teller.tell(f"client {client.name}: {rows:,} result rows, the same as plain Spark's")


def _tell_what_was_shown(clients: Sequence[Client], teller: Teller) -> None:
    sinks = len(pipeline.sinks)
    teller.tell(
        f"[green]shown:[/] {len(clients)} clients ran through one plan at once; the {sinks}"
        " results of each were released together, when its END had come through every stage, and"
        " all of them are what plain Spark gives for the same files"
    )


def _rows(session: Session, batches: Sequence[Batch]) -> Rows:
    files = [file for batch in batches for file in batch.files]
    return [tuple(row) for row in session.read.parquet(*files).collect()] if files else []


def _show(session: Session, results: ResultCollector, teller: Teller) -> None:
    name = next(iter(results.published))
    for sink, batches in results.published[name].items():
        files = [file for batch in batches for file in batch.files]
        if not files:
            continue
        frame = session.read.parquet(*files)
        rows = frame.orderBy(*frame.columns[:2]).limit(SHOWN_ROWS).collect()
        total = sum(batch.rows for batch in batches)
        title = f"client {name}, {sink}: {QUESTIONS[sink]}, {total:,} rows"
        teller.console.print(_table(title, frame.columns, rows))


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        table.add_row(*(str(value) for value in row))
    return table
