"""Rows of both sources say when they happened; one of them may come late."""

import tidegate as tg

pipeline = tg.Pipeline("event_time", shards=2)
sales = pipeline.source(
    "sales",
    "store_id bigint, amount decimal(10,2), sold_at timestamp",
    event_time="sold_at",
    delay="10 minutes",
)
visits = pipeline.source("visits", "store_id bigint, day date", event_time="day")
totals = sales.aggregate(by="store_id", total="sum(amount)")
visits.aggregate(by="store_id", visits="count(*)").join(totals, on="store_id").sink("stores")
