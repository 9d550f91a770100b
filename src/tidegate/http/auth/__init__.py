"""Authentication: clients, their tokens, and which requests are accepted."""
