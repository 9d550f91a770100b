"""The cutover that workers of `test_cutover` work for; they import it."""

from __future__ import annotations

from tidegate.cutover import Limits, PostgresTable, PostgresTarget, Reindex

LIMITS = Limits(portion=1000, piece=250, gate_timeout=120.0, patience=60.0)

reindex = Reindex(
    "articles",
    PostgresTable("shop.articles"),
    PostgresTarget("search.articles", text=("title", "body"), language="english"),
    LIMITS,
    master="local[2]",
)
flow, feed = reindex.flow, reindex.feed
