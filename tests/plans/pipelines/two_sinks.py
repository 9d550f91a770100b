"""Two sinks meet in one collector, behind a barrier that waits for both."""

import tidegate as tg

pipeline = tg.Pipeline("two_sinks")
sales = pipeline.source("sales", "store_id bigint, amount decimal(10,2)")
sales.filter("amount >= 75").sink("large")
sales.filter("amount < 75").sink("small")
