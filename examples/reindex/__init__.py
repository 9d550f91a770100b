"""Replaces the search index of a shop's articles while it is in use.

`plain` finds words as they are written; `stemmed` finds them in all their forms. Both are cutovers
of the same alias: deploying `stemmed` after `plain` creates another index, and readers of
`search.articles` are switched to it without downtime.
"""

from __future__ import annotations

from tidegate.cutover import Limits, PostgresTable, PostgresTarget, Reindex

TABLE = """
CREATE SCHEMA shop;
CREATE TABLE shop.articles (
    id bigint PRIMARY KEY,
    title text NOT NULL,
    body text NOT NULL,
    price numeric(10, 2) NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
"""
LIMITS = Limits(portion=10_000, piece=2_500)


def declared(language: str) -> Reindex:
    """The cutover of the index of articles, for a language."""
    target = PostgresTarget("search.articles", text=("title", "body"), language=language)
    return Reindex("articles", PostgresTable("shop.articles"), target, LIMITS)


plain = declared("simple")
stemmed = declared("english")
