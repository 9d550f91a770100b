"""A stream joined with itself: two edges to one child, one barrier, two channels."""

import tidegate as tg

pipeline = tg.Pipeline("self_join")
people = pipeline.source("people", "id bigint, city string")
people.join(people, on="city").sink("neighbours")
