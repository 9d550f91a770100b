"""`tidegate demo`: three clients run the coffee pipeline at once, and their worker is killed.

    this process     server: three clients deliver chunks to it concurrently
    worker 1         runs the stages on Spark, until it is killed half-way
    worker 2         continues from the committed state

It uses an embedded PostgreSQL, worker processes and SIGKILL. At the end every result is compared
with a plain Spark query over the same files.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from rich.console import Console

import tidegate as tg
from tidegate_examples.coffee import pipeline
from tidegate_examples.coffee.data import Size
from tidegate_examples.coffee.demo.answers import Answers, plain_answers, released_answers
from tidegate_examples.coffee.demo.clients import Client, make_client
from tidegate_examples.coffee.demo.progress import have_leases_expired, progress
from tidegate_examples.coffee.demo.report import compare, show_completeness, show_rows
from tidegate_examples.coffee.demo.state import DemoState
from tidegate_examples.coffee.demo.workers import WorkerProcess, worker_command
from tidegate_examples.demo_output import DemoOutput

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATABASE = "TIDEGATE_DATABASE"
DONE_BEFORE_KILL = 14
"""Completed tasks of a run before the worker is killed. Side tables alone are ten, which need no
Spark job."""

Start = Callable[[int], WorkerProcess]


def main() -> None:
    """Run the demo and print its progress."""
    logging.basicConfig(level=logging.ERROR)  # the demo prints what the warnings would
    os.environ.pop(DATABASE, None)  # the demo never uses a configured database
    signal.signal(signal.SIGTERM, _leave)
    output = DemoOutput(Console())
    with output.live():
        output.line("starting Spark in this process to check the plan and compare the results …")
        with tg.session_on() as session, _deployment(output) as (folder, deployment):
            _run_demo(folder, deployment, session, output)


def _leave(*_: object) -> None:
    """Stop all processes of the demo, as after Ctrl-C."""
    raise SystemExit("the demo was stopped")


@contextmanager
def _deployment(output: DemoOutput) -> Iterator[tuple[Path, tg.Deployment]]:
    name = TemporaryDirectory(prefix="tidegate-demo-", ignore_cleanup_errors=True)
    with name as folder, tg.connect(Path(folder) / "deployment") as deployment:
        output.line("started an embedded PostgreSQL in a temporary folder")
        yield Path(folder), deployment


def _run_demo(
    folder: Path, deployment: tg.Deployment, session: SparkSession, output: DemoOutput
) -> None:
    def start(number: int) -> WorkerProcess:
        command = worker_command(folder / "deployment")
        worker = WorkerProcess(number, command, folder / f"worker-{number}.log")
        output.line(f"starting {worker.name}: process {worker.pid}, with its own Spark")
        return worker

    with start(1) as worker:
        clients = _clients(folder / "clients", output)
        with deployment.serve(pipeline, session, worker=False) as service:
            output.line("Spark has checked the plan (see tidegate explain coffee)")
            runs = {client.name: service.start(client.name) for client in clients}
            state = DemoState(deployment, output, clients, runs)
            with _helpers(clients) as pool:
                expected = _run_scenario(state, worker, start, pool, session)
            results = {name: run.result() for name, run in runs.items()}
    _report(state, session, results, expected)


def _report(
    state: DemoState,
    session: SparkSession,
    results: dict[str, tg.Results],
    expected: dict[str, Answers],
) -> None:
    answers = {name: released_answers(session, of_run) for name, of_run in results.items()}
    for name, rows in answers.items():
        compare(name, rows, expected, state.output)
    smallest = state.clients[0].name
    show_rows(smallest, answers[smallest], results[smallest], state.output)
    show_completeness(state, results)
    _print_summary(state)


# ── setting up ──


def _clients(folder: Path, output: DemoOutput) -> list[Client]:
    clients = [
        make_client("corner", Size(2_000, files=1), folder),
        make_client("town", Size(20_000, files=4), folder, repeats=True),
        make_client("chain", Size(100_000, files=8), folder, pauses=True),
    ]
    chunks = ", ".join(f"{client.name} {client.chunks} chunks" for client in clients)
    output.line(f"generated the data of three clients: {chunks}")
    return clients


@contextmanager
def _helpers(clients: Sequence[Client]) -> Iterator[ThreadPoolExecutor]:
    """Threads for the clients; when the demo ends early, none of them keeps waiting."""
    with ThreadPoolExecutor(thread_name_prefix="demo") as pool:
        try:
            yield pool
        finally:
            for client in clients:
                client.go_on.set()


# ── scenario ──


def _run_scenario(
    state: DemoState,
    worker: WorkerProcess,
    start: Start,
    pool: ThreadPoolExecutor,
    session: SparkSession,
) -> dict[str, Answers]:
    """From the first chunk to the last result; returns the expected results of plain Spark."""
    delivering = [
        pool.submit(client.deliver, state.runs[client.name], state.output)
        for client in state.clients
    ]
    state.follow(lambda: _is_under_way(state), delivering, worker)
    _kill(state, worker)
    state.follow(lambda: _is_loss_detected(state, delivering), delivering)
    last = state.clients[-1].name
    reasons = state.runs[last].why().split("; ")
    state.output.line(f"tidegate why {last}:", *reasons, style="yellow")
    with start(2) as successor:
        expected = pool.submit(_plain_answers, state, session)
        _follow_to_end(state, successor, [*delivering, expected])
        return expected.result()


def _is_under_way(state: DemoState) -> bool:
    return any(progress(facts).done >= DONE_BEFORE_KILL for facts in state.facts.values())


def _kill(state: DemoState, worker: WorkerProcess) -> None:
    worker.kill()
    message = f"{worker.name} is killed (SIGKILL) after {state.messages} messages"
    state.output.line(message, style="red")
    for client in state.clients:
        client.go_on.set()


def _is_loss_detected(state: DemoState, delivering: Sequence[Future[None]]) -> bool:
    """Clients deliver while no worker runs; after some seconds the leases expire."""
    is_delivered = all(delivery.done() for delivery in delivering)
    return is_delivered and all(have_leases_expired(facts) for facts in state.open_runs)


def _plain_answers(state: DemoState, session: SparkSession) -> dict[str, Answers]:
    state.output.line("meanwhile plain Spark computes the expected results in this process")
    return {client.name: plain_answers(session, client.files) for client in state.clients}


def _follow_to_end(state: DemoState, worker: WorkerProcess, helpers: Sequence[Future[Any]]) -> None:
    before = state.messages
    state.follow(lambda: state.messages > before, helpers, worker)
    state.output.line(f"{worker.name} continues from the committed state of worker 1")
    waiting = [client.name for client in state.clients]
    while waiting:
        state.follow(lambda: _closed_among(state, waiting) != [], helpers, worker)
        for name in _closed_among(state, waiting):
            state.runs[name].result()
            published = f"its {len(pipeline.sinks)} results were published together"
            state.output.line(f"client {name}: complete, {published}", style="green")
            waiting.remove(name)


def _closed_among(state: DemoState, names: Sequence[str]) -> list[str]:
    return [name for name in names if state.facts[name].run.state is not tg.RunState.OPEN]


def _print_summary(state: DemoState) -> None:
    state.output.line(
        "summary:",
        f"{len(state.clients)} clients ran through one plan at the same time",
        "their worker was killed, and the next one continued from its committed state",
        "the results of each client were published together, once all declared data was processed",
        "all results equal those of plain Spark for the same files",
        style="green",
    )
