"""Shards that differ from stage to stage, joins of gathered sides, an aggregate of everything."""

import tidegate as tg

pipeline = tg.Pipeline("sharded", shards=4)
clicks = pipeline.source("clicks", "user_id bigint, page string, at timestamp")
users = pipeline.source("users", "user_id bigint, country string, name string")

per_user = clicks.aggregate(by="user_id", shards=16, clicks="count(*)", last="max(at)")
per_user.join(users, on="user_id", how="left").aggregate(
    by="country", shards=1, clicks="sum(clicks)", users="count(*)"
).sink("countries")
clicks.aggregate(clicks="count(*)", pages="approx_count_distinct(page)").sink("everything")
