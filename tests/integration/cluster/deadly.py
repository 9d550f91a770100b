"""A pipeline whose data may end the Java process that works on it."""

import tidegate as tg


def deadly() -> tg.Pipeline:
    """Adds up; a quantity below zero ends Java, as a value that does not fit its memory would."""
    pipeline = tg.Pipeline("deadly", shards=1)
    sales = pipeline.source("sales", "item_id bigint, quantity int")
    ends = "if(quantity < 0, cast(reflect('java.lang.System', 'exit', 3) as int), quantity)"
    sales.select("item_id", quantity=ends).aggregate(by="item_id", sold="sum(quantity)").sink(
        "total"
    )
    return pipeline


pipeline = deadly()
