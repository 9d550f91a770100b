"""A coordinator as a program."""

from __future__ import annotations

from pathlib import Path

from tests.integration.group.talking import obey, tell_events
from tidegate.group import Coordinator


def main(address: str, secret: str, heartbeat: str, silence: str, admission: str) -> None:
    """Coordinate until told to stop."""
    tell_events()
    coordinator = Coordinator(
        address,
        secret=secret.encode(),
        heartbeat=float(heartbeat),
        silence=float(silence),
        admission=float(admission),
    )
    obey(
        {
            "address": lambda: coordinator.address,
            "close": coordinator.close,
            "descriptors": lambda: len(list(Path("/proc/self/fd").iterdir())),
        }
    )
