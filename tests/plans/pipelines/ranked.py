"""A ranking joined with one table after the other: one stage, in which joins name their right."""

import tidegate as tg

pipeline = tg.Pipeline("ranked", shards=3)
visits = pipeline.source("visits", "shop_id bigint, guest_id bigint, spent decimal(10,2)")
shops = pipeline.source("shops", "shop_id bigint, city string, phone string")
guests = pipeline.source("guests", "guest_id bigint, name string, phone string")

best = visits.filter("spent > 0").top(3, by="spent desc", per="shop_id")
named = best.join(shops.select("shop_id", "city"), on="shop_id").filter("city is not null")
named.join(guests, on="guest_id", how="left").select("city", "name", "spent").sink("best")
