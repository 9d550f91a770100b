"""Store: what has happened, in PostgreSQL. The only room that speaks SQL."""

from tidegate.store.database import Database, open_database
from tidegate.store.embedded import EmbeddedServer, Listen
from tidegate.store.leases import Lease, acquire, free_keys, guard, release, renew
from tidegate.store.wakeups import Wakeups, notify

__all__ = [
    "Database",
    "EmbeddedServer",
    "Lease",
    "Listen",
    "Wakeups",
    "acquire",
    "free_keys",
    "guard",
    "notify",
    "open_database",
    "release",
    "renew",
]
