"""A declared pipeline, with its named sources, streams and sinks."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from tidegate.pipeline.event_time import read_event_time
from tidegate.pipeline.names import Register, check_name
from tidegate.pipeline.nodes import Node, Reference, Sink, Source
from tidegate.pipeline.schema import read_schema
from tidegate.pipeline.source_line import user_line
from tidegate.pipeline.stream import Stream, check_shards

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.runtime.results import Results


class Pipeline:
    """A declared pipeline. Declaring runs nothing; mistakes raise errors with the user's line.

    >>> import tidegate as tg
    >>> shop = tg.Pipeline("shop", shards=4)
    >>> sales = shop.source("sales", "store_id bigint, amount decimal(10,2)")
    >>> sales.aggregate(by="store_id", total="sum(amount)").sink("totals")
    >>> list(shop.sources), list(shop.sinks)
    (['sales'], ['totals'])
    """

    def __init__(self, name: str, *, shards: int = 1) -> None:
        """`shards` is the number of slices of sources and aggregates."""
        self.at = user_line()
        check_name("pipeline", name, self.at)
        check_shards("pipeline", shards, self.at)
        self.name = name
        self.shards = shards
        self.sources: Register[Source] = Register("source")
        self.sinks: Register[Sink] = Register("sink")
        self.streams: Register[Node] = Register("stream")

    def source(
        self,
        name: str,
        schema: str | Mapping[str, str],
        *,
        event_time: str | None = None,
        delay: float | str | None = None,
    ) -> Stream:
        """Rows that clients deliver under `name`; the schema is Spark DDL, or name → type.

        `event_time` is the timestamp or date column with the time of a row. The latest time of all
        delivered rows less `delay`, seconds or a text such as "10 minutes", is the source's
        watermark, which is sent after them. Rows that are later than that are still processed.
        """
        at = user_line()
        fields = read_schema(name, schema, at)
        node = Source(at, name, fields, read_event_time(fields, event_time, delay, at))
        return Stream(self, self.sources.declare(name, node, at))

    def stream(self, name: str) -> Stream:
        """The stream that is `.named(name)`, in any module, before or after this call."""
        at = user_line()
        check_name("stream", name, at)
        return Stream(self, Reference(at, name))

    def run(self, /, **sources: object) -> Results:
        """Run the pipeline once over data that is at hand; the results of all sinks.

        Each source is given by its name: a path or glob, a Spark DataFrame, an Arrow table, a
        pandas DataFrame, or a list of those. Nothing has to be set up: the run has a temporary
        deployment and the Spark session of this process.

            results = shop.run(sales=df, items="items/*.parquet")
            results["totals"].to_df()
        """
        # Imported when it is used, because runtime is a layer above pipeline.
        embedded = import_module("tidegate.runtime.embedded_run")
        results: Results = embedded.run_pipeline(self, sources)
        return results

    def __repr__(self) -> str:
        return f"Pipeline({self.name!r}, shards={self.shards})"
