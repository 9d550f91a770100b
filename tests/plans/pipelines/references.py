"""A stream is read by its name before it is declared."""

import tidegate as tg

pipeline = tg.Pipeline("references")
pipeline.stream("large_sales").aggregate(by="store", n="count(*)").sink("counts")
sales = pipeline.source("sales", "store string, amount decimal(10,2)")
sales.filter("amount > 100").named("large_sales")
