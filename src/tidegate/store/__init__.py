"""Store: what has happened, in PostgreSQL."""

from tidegate.store.embedded import EmbeddedServer, Listen

__all__ = ["EmbeddedServer", "Listen"]
