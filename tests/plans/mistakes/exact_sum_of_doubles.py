"""A mistake, told with the line that makes it."""

import tidegate as tg

pipeline = tg.Pipeline("shop")
trips = pipeline.source("trips", "city string, km double")
trips.aggregate(by="city", km="sum(km)", exact=True).sink("distances")
