"""Ingestion: reads, checks and copies chunks that clients deliver."""
