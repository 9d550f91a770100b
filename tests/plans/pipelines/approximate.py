"""Sums of doubles and sketches are marked, and what only Spark can judge; exact columns are not."""

import tidegate as tg

pipeline = tg.Pipeline("approximate")
trips = pipeline.source("trips", "city string, km double, fare decimal(10,2), rider bigint")
trips.select("city", "fare", "rider", miles="km / 1.609").aggregate(
    by="city",
    miles="sum(miles)",
    per_trip="sum(miles) / count(*)",
    fares="sum(fare)",
    mean_fare="avg(fare) filter (where fare > 0)",
    riders="approx_count_distinct(rider)",
    tips="sum(tip_of(rider))",
).sink("cities")
