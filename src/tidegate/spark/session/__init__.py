"""Spark sessions: opening, authentication, probes, detection of a lost JVM."""
