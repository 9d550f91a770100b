"""How a program of these tests is told what to do: JSON lines in, JSON lines out.

    {"id": 3, "do": "barrier", "with": {"name": "noon"}, "aside": true}
    {"id": 3, "answer": …}    or    {"id": 3, "error": "BarrierRefused", "says": "…"}
    {"event": "barrier.arrived", "facts": {…}}

What is said `aside` runs in a thread of its own, so that the program can be told more meanwhile.
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


def obey(commands: Commands) -> None:
    """Do what is asked until nobody asks any more, and end the process then, come what may."""
    for line in sys.stdin:
        order = json.loads(line)
        if order.get("aside"):
            Thread(target=_follow, args=(commands, order), daemon=True).start()
        else:
            _follow(commands, order)
    os._exit(0)


def _follow(commands: Commands, order: dict[str, Any]) -> None:
    try:
        answer = commands[order["do"]](**order["with"])
    except Exception as trouble:  # noqa: BLE001  the test says which trouble is right
        _say({"id": order["id"], "error": type(trouble).__name__, "says": str(trouble)})
    else:
        _say({"id": order["id"], "answer": answer})


def _say(what: dict[str, Any]) -> None:
    with _writing:
        sys.stdout.write(json.dumps(what, default=str) + "\n")
        sys.stdout.flush()


class _Teller(logging.Handler):
    """Passes the group's events on to the test."""

    def emit(self, record: logging.LogRecord) -> None:
        event = getattr(record, "event", "text")
        facts = getattr(record, "facts", {"text": record.getMessage()})
        _say({"event": event, "level": record.levelname, "facts": facts})


def tell_events(level: int = logging.DEBUG) -> None:
    """From now on, say what happens in the group."""
    log = logging.getLogger("tidegate.group")
    log.setLevel(level)
    log.propagate = False
    log.addHandler(_Teller())
