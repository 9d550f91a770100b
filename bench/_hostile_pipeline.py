"""What both clients of `bench.hostile` send: notes, whose amounts are text that Spark casts."""

from __future__ import annotations

import tidegate as tg

pipeline = tg.Pipeline("notes", shards=2)
notes = pipeline.source("notes", "author string, note string, amount string")
notes.select("author", amount="cast(amount as bigint)").aggregate(
    by="author", total="sum(amount)"
).sink("totals")
notes.filter("length(note) > 0").select("author", "note").sink("texts")
