"""Declares flows: steps, generators, gates, state keys; no database."""
