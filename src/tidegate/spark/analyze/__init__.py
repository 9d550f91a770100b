"""Checks a declaration with Spark's analyzer before any data is read."""
