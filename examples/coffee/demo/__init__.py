"""`tidegate demo`: three clients ask the four questions at once, and their worker is killed.

    this process     server: three clients deliver chunks to it at the same time
    worker 1         runs the stages on Spark, until it is killed half-way
    worker 2         goes on where worker 1 was

Everything is real: an embedded PostgreSQL, workers as processes, SIGKILL. In the end every answer
is compared with plain Spark over the same files.
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
from typing import Any

from rich.console import Console

from tidegate.plan import PhysicalBarrier, plan_hash
from tidegate.runtime.deployment import Deployment, open_deployment
from tidegate.runtime.ingestion.run_service import RunService
from tidegate.runtime.monitor.diagnosis import reasons
from tidegate.runtime.task_graph import build_task_graph
from tidegate.spark import Checked, Session, check, session_on
from tidegate.store import Notifications, RunFacts, RunState
from tidegate_examples.coffee import pipeline
from tidegate_examples.coffee.data import Size
from tidegate_examples.coffee.demo.answers import Answers, plain_answers
from tidegate_examples.coffee.demo.clients import Client, make_client
from tidegate_examples.coffee.demo.progress import has_lost_its_owners, progress
from tidegate_examples.coffee.demo.report import compare, show_completeness, show_rows
from tidegate_examples.coffee.demo.show import Show
from tidegate_examples.coffee.demo.workers import WorkerProcess, worker_command
from tidegate_examples.demo_output import DemoOutput

DATABASE = "TIDEGATE_DATABASE"
UNDER_WAY = 14
"""Tasks that are done with some run before the worker is killed. Side tables alone are ten, which
need no Spark job."""
SHOWN_REASONS = 3

Start = Callable[[int], WorkerProcess]


def main() -> None:
    """Run the demo and say what happens."""
    logging.basicConfig(level=logging.ERROR)  # the demo tells what the warnings would
    os.environ.pop(DATABASE, None)  # the demo leaves no traces in anybody's database
    signal.signal(signal.SIGTERM, _leave)
    output = DemoOutput(Console())
    with output.live():
        output.line("starting Spark in this process, to check the plan and compare the answers …")
        with session_on() as session, _deployment(output) as (folder, place):
            _play(folder, place, session, output)


def _leave(*_: object) -> None:
    """Stop whatever was started, as after Ctrl-C."""
    raise SystemExit("the demo was asked to stop")


@contextmanager
def _deployment(output: DemoOutput) -> Iterator[tuple[Path, Deployment]]:
    name = TemporaryDirectory(prefix="tidegate-demo-", ignore_cleanup_errors=True)
    with name as folder, open_deployment(Path(folder) / "deployment") as place:
        output.line("an embedded PostgreSQL is running, in a folder that goes with the demo")
        yield Path(folder), place


def _play(folder: Path, place: Deployment, session: Session, output: DemoOutput) -> None:
    def start(number: int) -> WorkerProcess:
        command = worker_command(folder / "deployment")
        worker = WorkerProcess(number, command, folder / f"worker-{number}.log")
        output.line(f"{worker.name} starts: process {worker.pid}, with a Spark of its own")
        return worker

    with start(1) as worker, Notifications(place.database) as notifications:
        clients = _clients(folder / "clients", output)
        checked = _checked(session, output)
        task_graph = build_task_graph(checked.plan)
        server = RunService(place, pipeline, task_graph, lambda: session, notifications)
        show = Show(session, place, task_graph, server, output, clients)
        with _helpers(clients) as pool:
            expected = _tell_the_story(show, worker, start, pool)
    answers = compare(show, expected)
    smallest = clients[0].name
    show_rows(smallest, answers[smallest], _columns(checked), output)
    show_completeness(show)
    _tell_what_was_shown(show)


# ── setting up ──


def _clients(folder: Path, output: DemoOutput) -> list[Client]:
    clients = [
        make_client("corner", Size(2_000, files=1), folder),
        make_client("town", Size(20_000, files=4), folder, repeats=True),
        make_client("chain", Size(100_000, files=8), folder, pauses=True),
    ]
    told = ", ".join(f"{it.name} {it.chunks} chunks" for it in clients)
    output.line(f"three clients have made their data: {told}")
    return clients


def _checked(session: Session, output: DemoOutput) -> Checked:
    checked = check(pipeline, session)
    barriers = sum(isinstance(node, PhysicalBarrier) for node in checked.plan.nodes)
    stages = sum(1 for _ in checked.plan.stages)
    known = f"{stages} stages, {barriers} barriers, plan {plan_hash(checked.plan)[:12]}"
    output.line(f"Spark has checked the plan: {known} (tidegate explain coffee shows it)")
    return checked


def _columns(checked: Checked) -> dict[str, tuple[str, ...]]:
    stages = checked.stages.values()
    return {stage.sink: tuple(stage.output.names) for stage in stages if stage.sink}


@contextmanager
def _helpers(clients: Sequence[Client]) -> Iterator[ThreadPoolExecutor]:
    """Threads for the clients; when the demo ends early, none of them is left waiting."""
    with ThreadPoolExecutor(thread_name_prefix="demo") as pool:
        try:
            yield pool
        finally:
            for client in clients:
                client.go_on.set()


# ── the story ──


def _tell_the_story(
    show: Show, worker: WorkerProcess, start: Start, pool: ThreadPoolExecutor
) -> dict[str, Answers]:
    """From the first chunk to the last result; what plain Spark answers meanwhile."""
    delivering = [pool.submit(client.deliver, show.server, show.output) for client in show.clients]
    show.follow(lambda: _is_under_way(show), delivering, worker)
    _kill(show, worker)
    show.follow(lambda: _is_noticed(show, delivering), delivering)
    _tell_why(show.facts[show.clients[-1].name], show.output)
    with start(2) as successor:
        expected = pool.submit(_plain_answers, show)
        _follow_to_the_end(show, successor, [*delivering, expected])
        return expected.result()


def _is_under_way(show: Show) -> bool:
    return any(progress(facts).done >= UNDER_WAY for facts in show.facts.values())


def _kill(show: Show, worker: WorkerProcess) -> None:
    worker.kill()
    said = f"{worker.name} is killed (SIGKILL) in the midst of its work"
    show.output.line(f"{said}, after {show.messages} messages", style="red")
    for client in show.clients:
        client.go_on.set()


def _is_noticed(show: Show, delivering: Sequence[Future[None]]) -> bool:
    """Clients deliver on while nobody works; after some seconds the leases run out."""
    is_delivered = all(it.done() for it in delivering)
    return is_delivered and all(has_lost_its_owners(facts) for facts in show.open_runs)


def _tell_why(facts: RunFacts, output: DemoOutput) -> None:
    found = [reason.render(facts.now) for reason in reasons(facts)]
    more = [f"and {len(found) - SHOWN_REASONS} more"] if len(found) > SHOWN_REASONS else []
    output.line(f"tidegate why {facts.run.name}:", *found[:SHOWN_REASONS], *more, style="yellow")


def _plain_answers(show: Show) -> dict[str, Answers]:
    show.output.line("meanwhile this process asks plain Spark the same questions, to compare")
    return {client.name: plain_answers(show.session, client.files) for client in show.clients}


def _follow_to_the_end(show: Show, worker: WorkerProcess, helpers: Sequence[Future[Any]]) -> None:
    before = show.messages
    show.follow(lambda: show.messages > before, helpers, worker)
    show.output.line(f"{worker.name} goes on where worker 1 was; nothing is done again")
    waiting = [client.name for client in show.clients]
    while waiting:
        show.follow(lambda: _closed_among(show, waiting) != [], helpers, worker)
        for name in _closed_among(show, waiting):
            show.server.wait(name)
            published = f"its {len(pipeline.sinks)} results are published together"
            show.output.line(f"client {name}: complete, {published}", style="green")
            waiting.remove(name)


def _closed_among(show: Show, names: Sequence[str]) -> list[str]:
    return [name for name in names if show.facts[name].run.state is not RunState.OPEN]


def _tell_what_was_shown(show: Show) -> None:
    show.output.line(
        "what was shown:",
        f"{len(show.clients)} clients ran through one plan at once",
        "their worker was killed, and the next one went on where it was",
        "the results of each were released together, when all it had announced was processed",
        "all of them are what plain Spark gives for the same files",
        style="green",
    )
