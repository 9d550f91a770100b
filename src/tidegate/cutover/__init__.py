"""Cutovers: readers move from one index to another without noticing, and can move back.

    create ──┬─▶ fill ─▶ compare ─▶ switch ──┐
             └─▶ follow ─────────────────────┴─▶ finish        a `Reindex` is this flow

A `PostgresTable` is what is indexed; its changes are logged by triggers from the first step on. A
`Target` holds versioned indexes and one alias that readers use. Spark fills the new index by ranges
of the key while a follower applies the changes, in any order and any number of times: a row never
overwrites a newer one. The alias is switched when everything was filled and compared, and the
follower has passed what was committed when the switch was wanted. From then on a *feed*, a flow of
its own, keeps the index fresh; that of the index before goes on as well, so that one can go back.
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
