"""A member of a group: its connections, messages, handlers and calls."""
