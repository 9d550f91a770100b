"""Spark: sessions, operators as DataFrame functions, batches as files.

    declaration ──analyze──▶ columns of every sink, or the user's line that cannot work
    plan ──prepare──▶ PreparedStage ──run_stage(batches)──▶ batches

The only room that imports pyspark. Nothing here uses RDDs, the Spark context or a collect, so
that everything runs on a classic session and over Spark Connect alike.
"""

from tidegate.spark.analyze import analyze
from tidegate.spark.exchange import Batch, Route
from tidegate.spark.prepare import PreparedStage, inputs_of, prepare
from tidegate.spark.reference import reference
from tidegate.spark.sessions import Session, open_session
from tidegate.spark.stages import passes_through, run_stage

__all__ = [
    "Batch",
    "PreparedStage",
    "Route",
    "Session",
    "analyze",
    "inputs_of",
    "open_session",
    "passes_through",
    "prepare",
    "reference",
    "run_stage",
]
