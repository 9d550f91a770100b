"""Every tunable of a deployment: name, default, unit, meaning.

A setting is given as `--set NAME=VALUE` to a command or as `TIDEGATE_NAME` in the environment,
which the processes of `tidegate up` inherit. Sizes are written as `512MiB` or in bytes, durations
in seconds. `tidegate settings` lists them all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, Self

from tidegate.errors import InvalidSetting

PREFIX = "TIDEGATE_"
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?B)?", re.IGNORECASE)
_POWERS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


def _setting(default: Any, unit: str, meaning: str) -> Any:
    return field(default=default, metadata={"unit": unit, "meaning": meaning})


@dataclass(frozen=True, slots=True)
class Settings:
    """The values of all settings; each field has a unit and a meaning."""

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
    disk_reserve_bytes: int = _setting(
        1 << 30,
        "bytes",
        "free space below which chunks are refused; at most 5 % of a disk; 0: none",
    )

    lease_seconds: float = _setting(
        6.0, "seconds", "after which a lease that is not renewed expires: the time to a takeover"
    )
    task_restart_seconds: float = _setting(
        0.5, "seconds", "before a failed task is restarted; doubled while it makes no progress"
    )
    task_failures: int = _setting(
        12, "failures", "of a task without progress of a run, after which its worker gives up"
    )
    task_stable_seconds: float = _setting(
        600.0, "seconds", "after which a failure of an idle task starts a new count"
    )
    monitor_seconds: float = _setting(
        1.0, "seconds", "between two looks of a monitor that gets no notification"
    )
    run_losses: int = _setting(
        3, "workers", "lost worker processes, each while it processed one run alone, that fail it"
    )
    wait_report_seconds: float = _setting(
        30.0, "seconds", "between two log lines of a call that waits for a run; 0: none"
    )
    stream_end_seconds: float = _setting(
        30.0, "seconds", "that END of a streaming source waits for the batch in progress"
    )

    log_bytes: int = _setting(
        16 << 20, "bytes", "size at which a log of `tidegate up` is rotated; 0: never"
    )
    log_files: int = _setting(4, "files", "rotated logs that are kept for each process")
    clock_settle_seconds: float = _setting(
        86_400.0, "seconds", "after a jump of the database's clock, until ages are trusted again"
    )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """The settings in the environment, and defaults for the rest. Raises `InvalidSetting`."""
        given: dict[str, Any] = {
            name: parse(name, environment[PREFIX + name.upper()])
            for name in KNOWN
            if PREFIX + name.upper() in environment
        }
        return cls(**given)


class SettingInfo(NamedTuple):
    """A setting, as `tidegate settings` lists it."""

    name: str
    default: Any
    unit: str
    meaning: str


KNOWN = {
    each.name: SettingInfo(each.name, each.default, each.metadata["unit"], each.metadata["meaning"])
    for each in fields(Settings)
}
DEFAULTS = Settings()


def parse(name: str, text: str) -> int | float:
    """The value of a setting, parsed from text. Raises `InvalidSetting`.

    >>> parse("chunk_value_bytes", "2MiB")
    2097152
    """
    if name not in KNOWN:
        raise InvalidSetting(name, text, f"the settings are {', '.join(sorted(KNOWN))}")
    described = KNOWN[name]
    try:
        value = _size(text) if described.unit == "bytes" else type(described.default)(text)
    except ValueError:
        raise InvalidSetting(name, text, f"a number of {described.unit} is expected") from None
    if not 0 <= value < float("inf"):
        raise InvalidSetting(name, text, "a number of at least 0 is expected")
    return value


def set_in_environment(environment: MutableMapping[str, str], given: Iterable[str]) -> None:
    """Set `NAME=VALUE` settings in an environment. Raises `InvalidSetting`."""
    for each in given:
        name, _, text = each.partition("=")
        parse(name, text)
        environment[PREFIX + name.upper()] = text


def _size(text: str) -> int:
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(text)
    return int(float(found[1]) * (1 << _POWERS[found[2].upper()]))
