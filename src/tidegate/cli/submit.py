"""`tidegate submit`: sends a folder of files to a server by HTTP, and fetches the results."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from os import environ
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.arguments.loader import find_pipeline
from tidegate.cli.arguments.options import (
    CheckpointEvery,
    DataFolder,
    UnalignedAfter,
    checkpoints_option,
)
from tidegate.cli.checkpoints import checkpoint_lines
from tidegate.cli.output.error_output import reported_errors
from tidegate.cli.output.tables import count_column
from tidegate.errors import NoDataFolder, NowhereToWrite, ServerUnreachable, TidegateError

if TYPE_CHECKING:
    from tidegate.http import HttpClient, HttpRunClient
    from tidegate.pipeline import Pipeline
    from tidegate.runtime.ingestion.folder_run import CheckpointReport, ProgressListener

TOKEN = "TIDEGATE_TOKEN"  # noqa: S105  the name of a variable
SERVER = "TIDEGATE_SERVER"
INTERRUPTED = "interrupted: repeat the command to resume"
STAYS_OPEN = (
    "run {run!r} stays open: correct the file and repeat the command, or cancel the run with"
    " `tidegate cancel {run} --deployment DIR`"
)


def submit(  # noqa: PLR0913, PLR0917  every argument is an option of the command
    pipeline: Annotated[
        str,
        typer.Argument(
            metavar="PIPELINE", help="The served name, or package.module:attribute as for `run`."
        ),
    ],
    run: Annotated[str, typer.Option("--run", help="The name of the run.", metavar="NAME")],
    data: DataFolder,
    out: Annotated[
        Path | None,
        typer.Option(
            help="With --wait: write the results to DIR/<sink>.csv.",
            metavar="DIR",
            show_default=False,
        ),
    ] = None,
    server: Annotated[
        str, typer.Option(envvar=SERVER, help="The server's address.", metavar="URL")
    ] = "http://127.0.0.1:8420",
    is_awaited: Annotated[
        bool, typer.Option("--wait", help="Wait for the results and write them.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Stop waiting after this many seconds (exit code 3).",
            metavar="SECONDS",
            show_default=False,
        ),
    ] = None,
    deadline: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Fail the run after this many seconds.",
            metavar="SECONDS",
            show_default=False,
        ),
    ] = None,
    checkpoint_every: CheckpointEvery = None,
    unaligned_after: UnalignedAfter = None,
    patience: Annotated[
        float,
        typer.Option(
            min=0,
            help="Retry this many seconds when the server does not respond.",
            metavar="SECONDS",
        ),
    ] = 60.0,
    allow_plain_http: Annotated[
        bool,
        typer.Option("--allow-plain-http", help="Send the token without TLS to another host."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Send a folder of files to a server as a run, and with --wait fetch its results.

    Repeating the command resumes: delivered chunks are not sent again. The token is read from the
    variable TIDEGATE_TOKEN.
    """
    with reported_errors(as_json=as_json, interrupted=INTERRUPTED):
        if is_awaited and out is None:
            raise NowhereToWrite(run)
        if not data.is_dir():
            raise NoDataFolder(str(data))
        declared = find_pipeline(pipeline) if ":" in pipeline else None
        # Imported here: loading these takes a second, also for `--help`.
        from tidegate.cli.output.progress import report_progress
        from tidegate.http import HttpClient
        from tidegate.http.client.http_client import STARTING
        from tidegate.runtime.ingestion.folder_run import (
            RunOptions,
            checkpoint_reports,
            chunks_of,
            send,
        )

        token = environ.get(TOKEN)
        http = HttpClient(
            server,
            token,
            patience,
            starting=STARTING if timeout is None else timeout,
            allow_plain_http=allow_plain_http,
        )
        with report_progress(quiet=as_json, first=f"connecting to {server}") as progress:
            http.on_outage = progress.report_wait
            remote = _remote(http, pipeline, declared)
            chunks = chunks_of(data, remote.served.sources)
            checkpoints = checkpoints_option(checkpoint_every, unaligned_after)
            options = RunOptions(run, deadline=deadline, checkpoints=checkpoints)
            with _note_if_open(remote, run):
                send(remote, chunks, options, progress)
            rows = _fetch(remote, run, out, progress, timeout) if is_awaited and out else None
            taken = checkpoint_reports(remote.checkpoints(run))
        report = SubmitReport(remote.served.pipeline, run, rows, taken)
        typer.echo(report.json() if as_json else report.text(out))


def _remote(http: HttpClient, pipeline: str, declared: Pipeline | None) -> HttpRunClient:
    """The server, if it serves the pipeline; a declaration limits the files that are used."""
    from tidegate.http import http_run_client
    from tidegate.http.client.trust import check_declared

    if declared is None:
        return http_run_client(http, lambda served: _name(pipeline, served))
    remote = http_run_client(http, lambda _: declared.name)
    check_declared(http.url, remote.served, declared.sources, declared.sinks)
    return remote


def _name(pipeline: str, served: str) -> str:
    """The name of the given pipeline; the served one need not be declared here."""
    return served if pipeline == served else find_pipeline(pipeline).name


@contextmanager
def _note_if_open(remote: HttpRunClient, run: str) -> Iterator[None]:
    """Add a note to an error if the run stays open: a refused chunk does not fail its run."""
    try:
        yield
    except ServerUnreachable:
        raise
    except TidegateError as error:
        if remote.is_open(run):
            error.add_note(STAYS_OPEN.format(run=run))
        raise


def _fetch(
    remote: HttpRunClient, run: str, out: Path, progress: ProgressListener, timeout: float | None
) -> Mapping[str, int]:
    """Wait for the results and write them."""
    from tidegate.runtime.ingestion.folder_run import wait
    from tidegate.runtime.ingestion.result_files import ResultFile, write_all

    def write(file: ResultFile) -> None:
        remote.write(run, file.sink, out / f"{file.sink}.csv", received=file.received)

    rows = wait(remote, run, progress, remote.check, timeout)
    write_all(progress, rows, write)
    return rows


@dataclass(frozen=True, slots=True)
class SubmitReport:
    """What was submitted, and with --wait what was fetched."""

    pipeline: str
    run: str
    rows: Mapping[str, int] | None
    """Rows of each sink; None without --wait."""
    checkpoints: tuple[CheckpointReport, ...]

    def json(self) -> str:
        """The report for programs."""
        state = "submitted" if self.rows is None else "complete"
        report = {"pipeline": self.pipeline, "run": self.run, "state": state, "rows_out": self.rows}
        taken = [asdict(checkpoint) for checkpoint in self.checkpoints]
        return json.dumps({**report, "checkpoints": taken}, indent=2)

    def text(self, out: Path | None) -> str:
        """The report for people."""
        run = f"run {self.run!r} of {self.pipeline}"
        if self.rows is None:
            return f"{run} is submitted; repeat the command with --wait to fetch the results"
        lines = [f"{run} is complete", "  out"]
        for sink, number in self.rows.items():
            lines.append(f"    {sink:<24} {count_column(number, 'row', 6)} in {out}/{sink}.csv")
        return "\n".join([*lines, *checkpoint_lines(self.checkpoints)])
