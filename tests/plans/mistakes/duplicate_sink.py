"""A mistake, told with the line that makes it."""

import tidegate as tg

pipeline = tg.Pipeline("shop")
sales = pipeline.source("sales", "amount decimal(10,2)")
sales.filter("amount > 1").sink("result")
sales.filter("amount > 2").sink("result")
