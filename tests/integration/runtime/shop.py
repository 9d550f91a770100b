"""A small shop for tests of served pipelines: its declaration, its clients, its results."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import tidegate as tg
from tidegate.checkpoint import Checkpoints
from tidegate.dataflow import Batch
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.file_storage import FileStorage
from tidegate.runtime.ingestion.run_service import RunService
from tidegate.spark import Session
from tidegate.store import Connection, Database

BOUND = 90
"""Seconds that a test waits for a run that has to end; far more than it takes."""
Row = tuple[object, ...]


def shop(name: str = "shop") -> tg.Pipeline:
    """What sold best, by name. `scaled` overflows for a quantity beyond all reason."""
    pipeline = tg.Pipeline(name, shards=2)
    sales = pipeline.source("sales", "item_id bigint, quantity int")
    items = pipeline.source("items", "item_id bigint, item_name string")
    sold = sales.select("item_id", scaled="quantity * 1000").aggregate(
        by="item_id", sold="sum(scaled)"
    )
    best = sold.top(1, by="sold desc, item_id")
    best.join(items, on="item_id").select("item_name", "sold").sink("best")
    sales.filter("quantity > 100").sink("bulk")
    return pipeline


class Client:
    """Begins a run, writes chunks of CSV and delivers them."""

    def __init__(
        self,
        server: RunService,
        run: str,
        folder: Path,
        checkpoints: Checkpoints | None = None,
        **bounds: float,
    ) -> None:
        self.server = server
        self.run = run
        self._folder = folder / run
        self._folder.mkdir(parents=True, exist_ok=True)
        self.id = server.begin(run, checkpoints=checkpoints, **bounds).id

    def sales(self, number: int, *rows: tuple[int, int]) -> bool:
        return self.deliver("sales", number, self.sales_file(number, rows))

    def items(self, number: int, *rows: tuple[int, str]) -> bool:
        lines = [f"{item},{name}" for item, name in rows]
        return self.deliver("items", number, self.file("items", number, "item_id,item_name", lines))

    def sales_file(self, number: int, rows: Iterable[tuple[int, int]]) -> Path:
        lines = [f"{item},{quantity}" for item, quantity in rows]
        return self.file("sales", number, "item_id,quantity", lines)

    def file(self, source: str, number: int, header: str, lines: Iterable[str]) -> Path:
        file = self._folder / f"{source}-{number}.csv"
        file.write_text("\n".join([header, *lines]) + "\n")
        return file

    def deliver(self, source: str, number: int, file: Path) -> bool:
        return self.server.deliver(self.run, source, number, str(file))

    def sell(self, name: str = "tea", quantity: int = 7) -> None:
        """A whole run that sells one thing."""
        self.items(1, (1, name))
        self.sales(1, (1, quantity))
        self.end()

    def end(self) -> None:
        self.server.end(self.run)

    def wait(self) -> dict[str, list[Batch]]:
        return self.server.wait(self.run, BOUND)


def rows(spark: Session, place: Deployment, batches: list[Batch]) -> list[Row]:
    """The rows of a result, in some order."""
    files = [f"{place.root}/{file}" for batch in batches for file in batch.files]
    return [tuple(row) for row in spark.read.parquet(*files).collect()] if files else []


def files_of(place: Deployment, run: int) -> list[str]:
    """Every file that is there for a run, but for the checksums that Hadoop keeps of each."""
    storage = FileStorage(place.root)
    every = [*storage.files("chunks"), *storage.files("batches")]
    paths = [it.path for it in every if not it.path.endswith(".crc")]
    return [path for path in paths if f"/run={run}/" in path]


def ask(database: Database, sql: str, *values: object) -> list[Row]:
    """What PostgreSQL answers, or nothing if it only does something."""

    def work(connection: Connection) -> list[Row]:
        answer = connection.execute(sql.encode(), values)
        return answer.fetchall() if answer.description else []

    return database.transact(work)


def refuse(database: Database, table: str, code: str) -> None:
    """Let PostgreSQL refuse every write to a table with an error of this code, until `allow`."""
    body = f"BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = '{code}'; END"
    ask(
        database,
        f"CREATE FUNCTION tidegate.refuse() RETURNS trigger LANGUAGE plpgsql AS $${body}$$",
    )
    ask(
        database,
        f"CREATE TRIGGER refused BEFORE INSERT OR UPDATE ON tidegate.{table}"
        " FOR EACH ROW EXECUTE FUNCTION tidegate.refuse()",
    )


def allow(database: Database) -> None:
    """Undo `refuse`."""
    ask(database, "DROP FUNCTION tidegate.refuse CASCADE")
