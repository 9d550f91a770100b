"""Run by `test_service_over_connect.py`: serves the shop over Connect, prints what came of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from tests.integration.runtime.shop import BOUND, Client, rows, shop
from tidegate.errors import RunFailed, RunTimeout, StreamOverConnect
from tidegate.runtime.deployment import Deployment, open_deployment
from tidegate.runtime.service import PipelineService, serve
from tidegate.spark import Session, open_session


def sell(service: PipelineService, run: str, folder: Path, most: int) -> Client:
    """Several chunks on both shards, of which the second comes twice; its items are not closed."""
    client = Client(service.server, run, folder)
    client.sales(1, (1, 5), (2, 6))
    client.sales(2, (1, 5), (3, most))
    client.sales(2, (1, 5), (3, most))
    client.sales(3)
    service.server.end(run, "sales", chunks=3)
    client.items(1, (1, "tea"), (2, "coffee"), (3, "beans"))
    return client


def outcome(client: Client, seconds: float) -> str:
    try:
        client.server.wait(client.run, seconds)
    except RunTimeout:
        return "open"
    except RunFailed as failure:
        return "failed" if "OVERFLOW" in failure.cause.upper() else failure.cause
    return "complete"


def results(client: Client, place: Deployment, session: Session) -> str:
    published = client.server.results(client.run)
    return str({sink: sorted(rows(session, place, its)) for sink, its in published.items()})


def seen(session: Session, folder: Path) -> Iterator[str]:
    with (
        open_deployment(folder / "deployment") as place,
        serve(place, shop(), session) as service,
    ):
        sold = {"tea": 9, "beans": 200, "too many": 2_000_000_000}
        clients = [sell(service, run, folder, most) for run, most in sold.items()]
        yield f"before END {outcome(clients[0], seconds=1.0)}"
        for client in clients:
            client.server.end(client.run, "items", chunks=1)
        for client in clients:
            yield f"{client.run} {outcome(client, BOUND)}"
        for client in clients:
            yield f"{client.run} {results(client, place, session)}"
        yield followed(service, session, folder)


def followed(service: PipelineService, session: Session, folder: Path) -> str:
    """What is said to a stream of such a session."""
    client, stream = Client(service.server, "streamed", folder), session.readStream.format("rate")
    try:
        service.server.follow(client.run, "sales", stream.load(), checkpoint=str(folder / "stream"))
    except StreamOverConnect as refusal:
        return f"a stream of {refusal.source} is refused"
    return "followed"


def main(folder: Path) -> None:
    session = open_session("local[2]", connect=True, settings={"spark.sql.shuffle.partitions": "2"})
    lines = [type(session).__module__, *seen(session, folder)]
    sys.stdout.writelines(f"{line}\n" for line in lines)
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
