"""Declares pipelines of sources, operators and sinks.

    Pipeline.source() ──▶ Stream.filter() … .aggregate() … ──▶ Stream.sink()

Every call creates one frozen node with the user's source line. SQL text is parsed as Spark SQL, and
invalid text is refused here; nothing runs, and Spark is not imported.
"""

from tidegate.pipeline.pipeline import Pipeline
from tidegate.pipeline.stream import Stream

__all__ = ["Pipeline", "Stream"]
