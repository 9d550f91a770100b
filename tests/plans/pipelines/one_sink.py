"""One channel from end to end: nothing to align, so no barrier."""

import tidegate as tg

pipeline = tg.Pipeline("one_sink")
sales = pipeline.source("sales", "store_id bigint, amount decimal(10,2)")
sales.filter("amount >= 75").select("store_id", cents="amount * 100").sink("large")
