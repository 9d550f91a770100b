"""The command protocol of the test programs: JSON lines in, JSON lines out.

    {"id": 3, "do": "barrier", "with": {"name": "noon"}, "aside": true}
    {"id": 3, "answer": …}    or    {"id": 3, "error": "BarrierRefused", "says": "…"}
    {"event": "barrier.arrived", "facts": {…}}

A command with `aside` runs in its own thread, so that further commands can follow.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from threading import Lock, Thread
from typing import Any

Commands = Mapping[str, Callable[..., Any]]

_writing = Lock()


def run_commands(commands: Commands) -> None:
    """Run commands until the input ends, then exit the process."""
    for line in sys.stdin:
        order = json.loads(line)
        if order.get("aside"):
            Thread(target=_run, args=(commands, order), daemon=True).start()
        else:
            _run(commands, order)
    os._exit(0)


def _run(commands: Commands, order: dict[str, Any]) -> None:
    try:
        answer = commands[order["do"]](**order["with"])
    except Exception as error:  # noqa: BLE001  passed on to the test
        _write({"id": order["id"], "error": type(error).__name__, "says": str(error)})
    else:
        _write({"id": order["id"], "answer": answer})


def _write(what: dict[str, Any]) -> None:
    with _writing:
        sys.stdout.write(json.dumps(what, default=str) + "\n")
        sys.stdout.flush()


class _EventForwarder(logging.Handler):
    """Passes the group's events on to the test."""

    def emit(self, record: logging.LogRecord) -> None:
        event = getattr(record, "event", "text")
        facts = getattr(record, "facts", {"text": record.getMessage()})
        _write({"event": event, "level": record.levelname, "facts": facts})


def forward_events(level: int = logging.DEBUG) -> None:
    """Write the log events of the group to the output."""
    log = logging.getLogger("tidegate.group")
    log.setLevel(level)
    log.propagate = False
    log.addHandler(_EventForwarder())
