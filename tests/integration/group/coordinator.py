"""A coordinator as a program: `python -m tests.integration.group.coordinator ADDRESS SECRET`."""

from __future__ import annotations

import sys

from tests.integration.group.talking import obey, tell_events
from tidegate.group import Coordinator


def main() -> None:
    """Coordinate until told to stop."""
    address, secret, heartbeat, silence, admission = sys.argv[1:]
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
            "error": lambda: repr(coordinator.error),
        }
    )


if __name__ == "__main__":
    main()
