"""Clients, their tokens, and which requests are accepted."""
