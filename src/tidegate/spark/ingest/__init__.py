"""Reads, checks and copies what clients deliver."""
