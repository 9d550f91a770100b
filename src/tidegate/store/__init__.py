"""Store: what has happened, in PostgreSQL. The only room that speaks SQL."""

from tidegate.store.database import Database, open_database
from tidegate.store.embedded import EmbeddedServer, Listen

__all__ = ["Database", "EmbeddedServer", "Listen", "open_database"]
