"""A function of the user's own needs every column and is known by its name."""

from typing import Any

import tidegate as tg


def with_vat(rows: Any) -> Any:
    return rows.withColumn("gross", rows.net * 119 / 100)


pipeline = tg.Pipeline("transform")
bills = pipeline.source("bills", "id bigint, net decimal(12,2), note string")
bills.transform(with_vat).select("id", "gross").sink("gross")
