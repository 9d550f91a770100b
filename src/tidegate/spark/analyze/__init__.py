"""Checks a declaration with Spark's analyser before any data is read."""
