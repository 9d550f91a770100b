"""Distinct rows of selected columns, of a union and of totals; one of them counted."""

import tidegate as tg

pipeline = tg.Pipeline("distinct", shards=4)
clicks = pipeline.source("clicks", "user_id bigint, page string, at timestamp")
views = pipeline.source("views", "user_id bigint, page string")

pages = clicks.select("user_id", "page").union(views).distinct()
pages.aggregate(by="page", users="count(user_id)").sink("users")
clicks.aggregate(by="user_id", clicks="count(*)").select("clicks").distinct().sink("numbers")
