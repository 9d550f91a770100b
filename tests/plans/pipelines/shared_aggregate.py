"""One aggregate, read by a ranking and by a sink; it is computed once and has one barrier."""

import tidegate as tg

pipeline = tg.Pipeline("shared_aggregate", shards=3)
sales = pipeline.source("sales", "item bigint, month string, quantity bigint")
monthly = sales.aggregate(by=["month", "item"], sold="sum(quantity)", sales="count(*)")
monthly.sink("monthly")
monthly.top(1, by=["sold desc", "item asc"], per="month").sink("best")
