"""`tidegate demo discover`: reads a site of unknown size while a worker is killed.

A site on loopback, an embedded PostgreSQL, two worker processes, SIGKILL. Half-way the worker that
reads the lists is killed. The other one resumes at the last saved list. In the end the report is
compared with the site: every article is counted once.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from subprocess import Popen
from tempfile import TemporaryDirectory

from rich.console import Console

from tidegate.flows import FlowRun, start_flow
from tidegate.store import open_database
from tidegate_examples.demo_output import DemoOutput
from tidegate_examples.discover import Report, discover, library, report
from tidegate_examples.discover.site import Site, served
from tidegate_examples.flow_workers import FlowWorkers

ARTICLES = 6_000
LIBRARY = "tidegate_examples.discover:library"
Workers = dict[str, Popen[bytes]]


def main() -> None:
    """Show it."""
    show(DemoOutput(Console()), ARTICLES)


def show(output: DemoOutput, articles: int) -> None:
    """Read a site of so many articles."""
    with (
        TemporaryDirectory(prefix="tidegate-", ignore_cleanup_errors=True) as folder,
        ExitStack() as left,
    ):
        site = left.enter_context(served(articles))
        database = left.enter_context(open_database(None, Path(folder)))
        pool = FlowWorkers(database, Path(folder), output, left)
        workers = {name: pool.start_worker(LIBRARY, name) for name in ("first", "second")}
        run = start_flow(database, library, site.address, key="today")
        output.line(f"two workers read {site.address}, whose size they do not know")
        _kill_discoverer(pool, run, workers)
        pool.wait_until("reading on", lambda: pool.is_complete(run), lambda: _far(pool, run))
        _check(pool, run, site)


def _kill_discoverer(pool: FlowWorkers, run: FlowRun, workers: Workers) -> None:
    """As soon as something was read, and while there is more to discover."""
    pool.wait_until(
        "reading",
        lambda: (
            _discoverer(run, workers) is not None and pool.step(run, discover.name).succeeded > 0
        ),
        lambda: _far(pool, run),
    )
    far = _far(pool, run)
    killed = _discoverer(run, workers)
    if killed is None:
        raise SystemExit("everything was discovered before a worker could be killed")
    killed.kill()
    pool.output.line(
        f"the worker that reads the lists is killed, process {killed.pid}{far}",
        "the other one resumes when its lease has expired",
    )


def _discoverer(run: FlowRun, workers: Workers) -> Popen[bytes] | None:
    """The process that runs the generator, if one does."""
    for it in run.inspect().in_flight:
        if it.step == discover.name and not it.is_items:
            return workers[it.worker.partition("-")[0]]
    return None


def _far(pool: FlowWorkers, run: FlowRun) -> str:
    step = pool.step(run, discover.name)
    plus = "" if step.generating == "complete" else "+"
    return f": {step.succeeded:,} of {step.spawned:,}{plus} articles, {step.failed} gone"


def _check(pool: FlowWorkers, run: FlowRun, site: Site) -> None:
    made: Report = run.result(report)
    read = [it.address for it in run.result(discover)]
    there = {f"{site.address}/article/{at}" for at in site.there}
    if len(read) != len(there) or set(read) != there or made != Report(len(there), site.words):
        raise SystemExit(f"{made} and {len(read)} summaries are not what the site has")
    step = pool.step(run, discover.name)
    again = sum(times - 1 for times in site.asked.values())
    pool.output.line(
        f"{made.articles:,} articles with {made.words:,} words are read, each of them counted once",
        f"{step.failed} were gone, which is tolerated up to 5 %; {again:,} requests were repeated:"
        " busy articles, and those that the killed worker had in flight",
        style="bold green",
    )


if __name__ == "__main__":
    main()
