"""Stages as Spark jobs: operators, exchange of rows, state."""
