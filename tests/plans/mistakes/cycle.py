"""A mistake, told with the line that makes it."""

import tidegate as tg

pipeline = tg.Pipeline("shop")
sales = pipeline.source("sales", "amount decimal(10,2)")
grown = sales.union(pipeline.stream("grown").filter("amount > 1"))
grown.named("grown")
grown.sink("result")
