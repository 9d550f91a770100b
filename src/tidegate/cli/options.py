"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tidegate.checkpoint import Checkpoints

DataFolder = Annotated[
    Path,
    typer.Option(
        "--data",
        help="Has a folder for each source, whose files are its chunks: *.csv, *.csv.gz, *.csv.bz2,"
        " *.parquet, *.arrow, *.feather or *.ipc. An empty folder is a source without rows.",
        metavar="DIR",
    ),
]
DeploymentFolder = Annotated[
    Path | None,
    typer.Option(
        "--deployment",
        help="Where runs live: PostgreSQL and all files. By default gone with the command.",
        metavar="DIR",
        show_default=False,
    ),
]
ExistingDeployment = Annotated[
    Path, typer.Option("--deployment", help="The folder of the deployment.", metavar="DIR")
]
DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        "--database",
        help="A PostgreSQL to use instead of the embedded one.",
        metavar="URL",
        show_default=False,
    ),
]
ListenAt = Annotated[
    str,
    typer.Option(
        "--listen",
        help="Where clients come by HTTP; port 0 is any free one.",
        metavar="HOST:PORT",
    ),
]
TokensFile = Annotated[
    Path | None,
    typer.Option(
        "--tokens",
        help="Who may ask: lines of `client: SHA-256 of its token`.",
        metavar="FILE",
        show_default=False,
    ),
]
LargestChunk = Annotated[
    int, typer.Option("--max-chunk-mb", min=1, help="The largest chunk, in megabytes.")
]
GivenSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="A setting; `tidegate settings` lists them. May be given several times.",
        metavar="NAME=VALUE",
        show_default=False,
    ),
]
SparkCores = Annotated[
    int | None,
    typer.Option(
        "--cores",
        min=1,
        help="How much of a Spark cluster each worker takes; by default the first takes all.",
        show_default=False,
    ),
]
SparkMaster = Annotated[str, typer.Option("--spark", help="A Spark master, or sc://host:port.")]
UnalignedAfter = Annotated[
    float | None,
    typer.Option(
        "--unaligned-after",
        min=0,
        help="A cut that has waited this long for barriers takes what is on its way along instead;"
        " a run can be restored to it, and sinks show the one before. With --checkpoint-every.",
        metavar="SECONDS",
        show_default=False,
    ),
]
CheckpointEvery = Annotated[
    float | None,
    typer.Option(
        "--checkpoint-every",
        min=0.1,
        help="Take a cut every so many seconds, if the run begins here.",
        metavar="SECONDS",
        show_default=False,
    ),
]


def checkpoints_option(every: float | None, unaligned_after: float | None) -> Checkpoints | None:
    """How a run is to be cut, if it is."""
    from tidegate.checkpoint import Checkpoints

    if every is None and unaligned_after is not None:
        raise typer.BadParameter(
            "--unaligned-after says how cuts are taken: give --checkpoint-every too"
        )
    return None if every is None else Checkpoints(every=every, unaligned_after=unaligned_after)
