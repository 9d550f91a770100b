"""A mistake, told with the line that makes it."""

import tidegate as tg

pipeline = tg.Pipeline("shop")
pipeline.source("sales", "amount decimal(10,2), at timestamp", delay="10 minutes").sink("all")
