"""`tidegate submit`: a folder of files to a server by HTTP, and its results back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import environ
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.error_output import reported_errors
from tidegate.cli.loader import find_pipeline
from tidegate.cli.options import CheckpointEvery, DataFolder, UnalignedAfter, checkpoints_option
from tidegate.cli.tables import count_column
from tidegate.errors import NoDataFolder, NowhereToWrite, ServerUnreachable, TidegateError

if TYPE_CHECKING:
    from tidegate.http import HttpClient, HttpRunClient
    from tidegate.pipeline import Pipeline
    from tidegate.runtime.ingestion.folder_run import ProgressListener

TOKEN = "TIDEGATE_TOKEN"  # noqa: S105  the name of a variable
SERVER = "TIDEGATE_SERVER"
INTERRUPTED = "interrupted: give the same command again to go on"
STAYS_OPEN = (
    "run {run!r} stays open: correct the file and give the same command again, or give the run up"
    " with `tidegate cancel {run} --deployment DIR`"
)


def submit(  # noqa: PLR0913, PLR0917  every argument is an option of the command
    pipeline: Annotated[
        str,
        typer.Argument(metavar="PIPELINE", help="The name that is served, or what `run` takes."),
    ],
    run: Annotated[str, typer.Option("--run", help="The name of the run.", metavar="NAME")],
    data: DataFolder,
    out: Annotated[
        Path | None,
        typer.Option(help="Gets DIR/<sink>.csv, with --wait.", metavar="DIR", show_default=False),
    ] = None,
    server: Annotated[
        str, typer.Option(envvar=SERVER, help="The server's address.", metavar="URL")
    ] = "http://127.0.0.1:8420",
    is_awaited: Annotated[
        bool, typer.Option("--wait", help="Wait for the results and write them.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(min=0, help="Wait no longer than this many seconds.", show_default=False),
    ] = None,
    deadline: Annotated[
        float | None,
        typer.Option(min=0, help="Let the run fail after this many seconds.", show_default=False),
    ] = None,
    checkpoint_every: CheckpointEvery = None,
    unaligned_after: UnalignedAfter = None,
    patience: Annotated[
        float, typer.Option(min=0, help="Seconds to go on trying when the server is away.")
    ] = 60.0,
    allow_plain_http: Annotated[
        bool,
        typer.Option(
            "--allow-plain-http", help="Send the token without TLS, also to another host."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The report for programs.")] = False,
) -> None:
    """Send a folder of files to a server as a run, and with --wait fetch its results.

    Given again it goes on: what the server has is not sent again. A token is taken from the
    variable TIDEGATE_TOKEN.
    """
    with reported_errors(as_json=as_json, interrupted=INTERRUPTED):
        if is_awaited and out is None:
            raise NowhereToWrite(run)
        if not data.is_dir():
            raise NoDataFolder(str(data))
        declared = find_pipeline(pipeline) if ":" in pipeline else None
        # Loading what a server needs takes a second, which other commands need not pay.
        from tidegate.cli.progress import report_progress
        from tidegate.http import HttpClient
        from tidegate.http.client.http_client import STARTING
        from tidegate.runtime.ingestion.folder_run import RunOptions, chunks_of, send

        token = environ.get(TOKEN)
        calls = HttpClient(
            server,
            token,
            patience,
            starting=STARTING if timeout is None else timeout,
            allow_plain_http=allow_plain_http,
        )
        with report_progress(quiet=as_json, first=f"asking {server}") as progress:
            calls.on_outage = progress.report_wait
            remote = _remote(calls, pipeline, declared)
            chunks = chunks_of(data, remote.served.sources)
            checkpoints = checkpoints_option(checkpoint_every, unaligned_after)
            with _noting_what_stays_open(remote, run):
                send(
                    remote,
                    chunks,
                    RunOptions(run, deadline=deadline, checkpoints=checkpoints),
                    progress,
                )
            rows = _fetch(remote, run, out, progress, timeout) if is_awaited and out else None
        typer.echo(_report(remote, run, rows, out, as_json=as_json))


def _remote(calls: HttpClient, pipeline: str, declared: Pipeline | None) -> HttpRunClient:
    """The server, if it serves the pipeline; a declaration limits the files that are used."""
    from tidegate.http import http_run_client
    from tidegate.http.client.trust import check_declared

    if declared is None:
        return http_run_client(calls, lambda served: _name(pipeline, served))
    remote = http_run_client(calls, lambda _: declared.name)
    check_declared(calls.url, remote.served, declared.sources, declared.sinks)
    return remote


def _name(pipeline: str, served: str) -> str:
    """Of the pipeline that is meant; the one that is served need not be known here."""
    return served if pipeline == served else find_pipeline(pipeline).name


@contextmanager
def _noting_what_stays_open(remote: HttpRunClient, run: str) -> Iterator[None]:
    """A chunk that is refused leaves its run as it was, which nobody would guess."""
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


def _report(
    remote: HttpRunClient,
    run: str,
    rows: Mapping[str, int] | None,
    out: Path | None,
    *,
    as_json: bool,
) -> str:
    pipeline = remote.served.pipeline
    state = "submitted" if rows is None else "complete"
    if as_json:
        report = {"pipeline": pipeline, "run": run, "state": state, "rows_out": rows}
        return json.dumps(report, indent=2)
    if rows is None:
        return f"run {run!r} of {pipeline} is submitted; the same command with --wait fetches it"
    lines = [f"run {run!r} of {pipeline} is complete", "  released"]
    for sink, number in rows.items():
        lines.append(f"    {sink:<24} {count_column(number, 'row', 6)} in {out}/{sink}.csv")
    return "\n".join(lines)
