"""Ten thousand columns, and a plan that still fits on a screen."""

import tidegate as tg

COLUMNS = [f"reading_{number}" for number in range(10_000)]

pipeline = tg.Pipeline("wide", shards=8)
readings = pipeline.source("readings", {"sensor": "int", **dict.fromkeys(COLUMNS, "double")})
readings.aggregate(by="sensor", columns={name: f"max({name})" for name in COLUMNS}).sink("peaks")
