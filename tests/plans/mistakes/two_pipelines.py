"""A mistake, told with the line that makes it."""

import tidegate as tg

other = tg.Pipeline("warehouse").source("stock", "item bigint")
pipeline = tg.Pipeline("shop")
pipeline.source("sales", "item bigint").join(other, on="item").sink("result")
