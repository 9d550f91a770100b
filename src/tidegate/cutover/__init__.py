"""Cutovers: replace an index of a table without downtime, and reverse that.

    create ──┬─▶ backfill ─▶ verify ─▶ switch ──┐
             └─▶ consume changes ───────────────┴─▶ finish        a `Reindex` is this flow

A `PostgresTable` is the source; triggers log its changes from the first step on. A `Target` holds
versioned indexes and one alias that readers use. Spark backfills the new index by key ranges while
a change consumer applies the log, in any order and any number of times: a row never overwrites a
newer one. The alias is switched when the backfill is complete and verified, and the consumer has
passed what was committed when the switch was requested. From then on a *feed*, a flow of its own,
keeps the index fresh; the feed of the previous index continues, so that the switch can be reversed.
"""

from tidegate.cutover.operations import feed, indexes_of, retire, reverse, start_cutover
from tidegate.cutover.postgres_target import PostgresTarget
from tidegate.cutover.reindex import Limits, Reindex
from tidegate.cutover.source import PostgresTable
from tidegate.cutover.targets import Indexes, Target
from tidegate.cutover.values import CutoverRequest

__all__ = [
    "CutoverRequest",
    "Indexes",
    "Limits",
    "PostgresTable",
    "PostgresTarget",
    "Reindex",
    "Target",
    "feed",
    "indexes_of",
    "retire",
    "reverse",
    "start_cutover",
]
