"""What users declare: a pipeline of sources, operators and sinks.

    Pipeline.source() ──▶ Stream.filter() … .aggregate() … ──▶ Stream.sink()

Every call makes one frozen node that remembers the user's line. SQL text is parsed as Spark SQL
and refused here when it cannot work; nothing runs, and Spark is not imported.
"""

from tidegate.pipeline.pipeline import Pipeline
from tidegate.pipeline.stream import Stream

__all__ = ["Pipeline", "Stream"]
