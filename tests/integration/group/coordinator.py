"""A coordinator as a program."""

from __future__ import annotations

import resource
from pathlib import Path
from time import process_time
from unittest import mock

from tests.integration.group.commands import forward_events, run_commands
from tidegate.group import Coordinator
from tidegate.group.coordinator.coordinator_state import CoordinatorState


def lack_descriptors(*, lack: bool) -> None:
    """Let this process open nothing more, or as much as it may."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3 if lack else most, most))


def have_a_fault() -> None:
    """Let the coordinator run into a mistake of its own."""
    fault = ZeroDivisionError("one too many")
    mock.patch.object(CoordinatorState, "tick", side_effect=fault).start()


def main(address: str, secret: str, heartbeat: str, silence: str, admission: str) -> None:
    """Coordinate until the input ends."""
    forward_events()
    coordinator = Coordinator(
        address,
        secret=secret.encode(),
        heartbeat=float(heartbeat),
        silence=float(silence),
        admission=float(admission),
    )
    run_commands(
        {
            "address": lambda: coordinator.address,
            "check": coordinator.check,
            "close": coordinator.close,
            "have_a_fault": have_a_fault,
            "lack_descriptors": lack_descriptors,
            "seconds_of_work": process_time,
            "descriptors": lambda: len(list(Path("/proc/self/fd").iterdir())),
        }
    )
