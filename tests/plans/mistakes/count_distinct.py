"""A mistake, told with the line that makes it."""

import tidegate as tg

pipeline = tg.Pipeline("shop")
sales = pipeline.source("sales", "store_id bigint, user_id bigint")
sales.aggregate(by="store_id", users="count(distinct user_id)").sink("users")
