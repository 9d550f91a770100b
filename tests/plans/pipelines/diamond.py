"""A stream that parts and meets again: what the sides share is cheap, so each scans for itself."""

import tidegate as tg

pipeline = tg.Pipeline("diamond", shards=2)
orders = pipeline.source("orders", "id bigint, kind string, amount decimal(10,2)")
valid = orders.filter("amount > 0")
cheap = valid.filter("amount < 10").select("*", price="'cheap'")
dear = valid.filter("amount >= 10").select("*", price="'dear'")
cheap.union(dear).aggregate(by=["kind", "price"], total="sum(amount)").sink("totals")
