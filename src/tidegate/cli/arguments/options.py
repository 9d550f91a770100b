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
        help="Read the chunks from DIR/<source>/: *.csv, *.csv.gz, *.csv.bz2, *.parquet, *.arrow,"
        " *.feather or *.ipc. An empty folder is a source without rows.",
        metavar="DIR",
    ),
]
DeploymentFolder = Annotated[
    Path | None,
    typer.Option(
        "--deployment",
        help="The folder of the deployment: PostgreSQL and all files. By default a temporary one.",
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
        help="Use this PostgreSQL instead of the embedded one.",
        metavar="URL",
        show_default=False,
    ),
]
ListenAt = Annotated[
    str,
    typer.Option(
        "--listen",
        help="Listen for HTTP at this address; port 0 is any free port.",
        metavar="HOST:PORT",
    ),
]
TokensFile = Annotated[
    Path | None,
    typer.Option(
        "--tokens",
        help="A file of clients: lines of `client: SHA-256 of its token`.",
        metavar="FILE",
        show_default=False,
    ),
]
LargestChunk = Annotated[
    int,
    typer.Option("--max-chunk-mb", min=1, help="Size limit of a chunk in megabytes.", metavar="MB"),
]
GivenSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Change a setting; `tidegate settings` lists them. May be given several times.",
        metavar="NAME=VALUE",
        show_default=False,
    ),
]
SparkCores = Annotated[
    int | None,
    typer.Option(
        "--cores",
        min=1,
        help="Cores of a Spark cluster for each worker; by default the first takes all.",
        show_default=False,
    ),
]
SparkMaster = Annotated[
    str, typer.Option("--spark", help="The Spark master, or sc://HOST:PORT.", metavar="MASTER")
]
ShardCount = Annotated[
    int | None,
    typer.Option("--shards", min=1, help="The number of shards per stage.", show_default=False),
]
PipelineArgument = Annotated[
    str, typer.Argument(metavar="PIPELINE", help="A registered name, or package.module:attribute.")
]
UnalignedAfter = Annotated[
    float | None,
    typer.Option(
        "--unaligned-after",
        min=0,
        help="With --checkpoint-every: a checkpoint that has waited this long for barriers stores"
        " the messages in flight instead, and is not published.",
        metavar="SECONDS",
        show_default=False,
    ),
]
CheckpointEvery = Annotated[
    float | None,
    typer.Option(
        "--checkpoint-every",
        min=0.1,
        help="Take a checkpoint every so many seconds, if this command begins the run.",
        metavar="SECONDS",
        show_default=False,
    ),
]


def checkpoints_option(every: float | None, unaligned_after: float | None) -> Checkpoints | None:
    """The checkpoint options of a run; None for no periodic checkpoints."""
    from tidegate.checkpoint import Checkpoints

    if every is None and unaligned_after is not None:
        raise typer.BadParameter("--unaligned-after needs --checkpoint-every")
    return None if every is None else Checkpoints(every=every, unaligned_after=unaligned_after)
