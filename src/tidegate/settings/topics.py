"""The settings by topic: name, default, unit, meaning.

A component takes the class of its topic; `Settings` has all of them. Names begin with the topic, so
that one name is enough for `--set`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


def _setting(default: float, unit: str, meaning: str) -> Any:
    return field(default=default, metadata={"unit": unit, "meaning": meaning})


@dataclass(frozen=True, kw_only=True)
class ChunkSettings:
    """Limits of reading a chunk that a client has delivered."""

    chunk_value_bytes: int = _setting(16 << 20, "bytes", "largest single value in a chunk")
    chunk_line_bytes: int = _setting(32 << 20, "bytes", "longest line of a CSV chunk")
    chunk_decoded_bytes: int = _setting(8 << 30, "bytes", "largest decoded size of a chunk")
    chunk_decoded_ratio: int = _setting(
        500, "times", "largest growth of a chunk by decoding, from 256 MiB decoded bytes"
    )
    chunk_memory_bytes: int = _setting(2 << 30, "bytes", "memory of a process that checks chunks")
    chunk_spark_bytes: int = _setting(
        128 << 20, "bytes", "memory for reading a row group of Parquet that only Spark can check"
    )
    chunk_seconds: float = _setting(
        120.0, "seconds", "time for checking a chunk, in addition to one second per MiB of its file"
    )
    chunk_checkers: int = _setting(
        3, "processes", "processes that check chunks; at least http_deliveries"
    )


@dataclass(frozen=True, kw_only=True)
class HttpSettings:
    """Limits of the HTTP server."""

    http_connections: int = _setting(
        512, "connections", "open connections of a server; at most half of its file descriptors"
    )
    http_connections_per_address: int = _setting(
        256, "connections", "open connections from one address"
    )
    http_requests_per_client: int = _setting(
        128, "requests", "concurrent requests of one client; more are refused with 429"
    )
    http_calls: int = _setting(
        4, "requests", "concurrent requests that read the database; of one client at most one fewer"
    )
    http_uploads_per_client: int = _setting(
        4, "chunks", "concurrent uploads of one client; more wait before they are read"
    )
    http_uploads_waiting: int = _setting(
        64, "chunks", "waiting uploads of one client; more are refused with 429"
    )
    http_deliveries: int = _setting(
        3, "chunks", "chunks that a server checks concurrently; of one client at most one fewer"
    )
    http_results: int = _setting(
        3, "results", "results that a server reads concurrently; of one client at most one fewer"
    )
    http_downloads: int = _setting(16, "results", "concurrent downloads of a server")
    http_downloads_per_client: int = _setting(4, "results", "concurrent downloads of one client")
    http_head_seconds: float = _setting(
        10.0, "seconds", "how long a connection may be idle, or take to send a request head"
    )
    http_send_seconds: float = _setting(
        60.0, "seconds", "how long a client may take to read the next megabyte of an answer"
    )
    http_stop_seconds: float = _setting(
        10.0, "seconds", "how long running requests may take when a server stops"
    )
    health_seconds: float = _setting(2.0, "seconds", "time for `/health` to read the database")
    client_open_runs: int = _setting(
        1_000, "runs", "open runs that a client of a server may have; 0: any number"
    )
    client_open_bytes: int = _setting(
        1 << 40,
        "bytes",
        "stored bytes that a client's open runs may have, at most half of the disk; 0: any number",
    )


@dataclass(frozen=True, kw_only=True)
class StoreSettings:
    """The database, leases, and free space."""

    lease_seconds: float = _setting(
        6.0, "seconds", "after which a lease that is not renewed expires: the time to a takeover"
    )
    clock_settle_seconds: float = _setting(
        86_400.0, "seconds", "after a jump of the database's clock, until ages are trusted again"
    )
    disk_reserve_bytes: int = _setting(
        1 << 30,
        "bytes",
        "free space below which chunks are refused; at most 5 % of a disk; 0: none",
    )


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Runs of a pipeline: ingestion and waiting."""

    run_losses: int = _setting(
        3, "workers", "lost worker processes, each while it processed one run alone, that fail it"
    )
    wait_report_seconds: float = _setting(
        30.0, "seconds", "between two log lines of a call that waits for a run; 0: none"
    )
    stream_end_seconds: float = _setting(
        30.0, "seconds", "that END of a streaming source waits for the batch in progress"
    )


@dataclass(frozen=True, kw_only=True)
class TaskSettings:
    """Tasks of a pipeline: restarts and job sizes."""

    task_restart_seconds: float = _setting(
        0.5, "seconds", "before a failed task is restarted; doubled while it makes no progress"
    )
    task_failures: int = _setting(
        12, "failures", "of a task without progress of a run, after which its worker gives up"
    )
    task_stable_seconds: float = _setting(
        600.0, "seconds", "after which a failure of an idle task starts a new count"
    )


@dataclass(frozen=True, kw_only=True)
class MonitorSettings:
    """The monitor and the sweeper."""

    monitor_seconds: float = _setting(
        1.0, "seconds", "between two looks of a monitor that gets no notification"
    )


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    """Logs of `tidegate up`."""

    log_bytes: int = _setting(
        16 << 20, "bytes", "size at which a log of `tidegate up` is rotated; 0: never"
    )
    log_files: int = _setting(4, "files", "rotated logs that are kept for each process")
