"""A mistake, told with the line that makes it."""

import tidegate as tg

pipeline = tg.Pipeline("shop")
sales = pipeline.source("sales", "store_id bigint")
stores = pipeline.source("stores", "store_id bigint")
sales.join(stores).sink("result")
