"""Spark: sessions, operators as DataFrame functions, batches as files.

    declaration ──check──▶ plan, a PreparedStage for each stage, columns of every sink,
                           or an error with the user's line
    file ──ingest──▶ a batch of typed rows, or an error with the line or column
    PreparedStage, [JobInput] ──run_stage_job──▶ output batches of each input, by one Spark job

The only package that imports pyspark. It uses no RDD, Spark context or collect of data, so that
everything runs on a classic session and over Spark Connect alike.
"""

from tidegate.spark.analyze.analyze import Checked, analyze, check
from tidegate.spark.analyze.prepare import PreparedStage, prepare
from tidegate.spark.analyze.schemas import Schema
from tidegate.spark.checker.pool import CheckerPool
from tidegate.spark.ingest.event_times import latest_event, watermark
from tidegate.spark.ingest.frames import (
    as_frame,
    collect_frame,
    copy_frame,
    frame_digest,
    rows_from_arrow,
)
from tidegate.spark.ingest.ingest import ingest, ingest_table
from tidegate.spark.ingest.parquet_files import digest
from tidegate.spark.ingest.streams import (
    Rows,
    StreamQuery,
    check_stream,
    copy_rows,
    failure_of,
    follow,
    is_ended,
    planned_batch,
    stream_id,
)
from tidegate.spark.jobs.compact_state import compacting
from tidegate.spark.jobs.exchange import Route
from tidegate.spark.jobs.job_input import JobInput
from tidegate.spark.jobs.run_stage import passes_through, run_stage_job
from tidegate.spark.jobs.spark_errors import is_in_the_data
from tidegate.spark.reference import reference
from tidegate.spark.results.csv_result import write_csv
from tidegate.spark.results.result_frames import result_files, result_rows, result_table
from tidegate.spark.results.result_streams import columns_of
from tidegate.spark.session.engines import EngineCapabilities
from tidegate.spark.session.jvm_liveness import ended_under, reported_end, why_ended
from tidegate.spark.session.probes import ensure_fit
from tidegate.spark.session.sessions import (
    Session,
    active_session,
    engine_session,
    open_session,
    prefer_this_thread,
    session_on,
)

__all__ = [
    "Checked",
    "CheckerPool",
    "EngineCapabilities",
    "JobInput",
    "PreparedStage",
    "Route",
    "Rows",
    "Schema",
    "Session",
    "StreamQuery",
    "active_session",
    "analyze",
    "as_frame",
    "check",
    "check_stream",
    "collect_frame",
    "columns_of",
    "compacting",
    "copy_frame",
    "copy_rows",
    "digest",
    "ended_under",
    "engine_session",
    "ensure_fit",
    "failure_of",
    "follow",
    "frame_digest",
    "ingest",
    "ingest_table",
    "is_ended",
    "is_in_the_data",
    "latest_event",
    "open_session",
    "passes_through",
    "planned_batch",
    "prefer_this_thread",
    "prepare",
    "reference",
    "reported_end",
    "result_files",
    "result_rows",
    "result_table",
    "rows_from_arrow",
    "run_stage_job",
    "session_on",
    "stream_id",
    "watermark",
    "why_ended",
    "write_csv",
]
