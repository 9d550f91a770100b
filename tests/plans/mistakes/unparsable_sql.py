"""A mistake, told with the line that makes it."""

import tidegate as tg

pipeline = tg.Pipeline("shop")
sales = pipeline.source("sales", "amount decimal(10,2)")
(
    sales.select("amount")
    .filter("amount >= ")
    .sink("result")
)  # fmt: skip
