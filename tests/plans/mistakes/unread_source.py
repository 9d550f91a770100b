"""A mistake, told with the line that makes it."""

import tidegate as tg

pipeline = tg.Pipeline("shop")
stores = pipeline.source("stores", "store_id bigint")
pipeline.source("sales", "amount decimal(10,2)").sink("result")
