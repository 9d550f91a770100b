"""File descriptors: connections take a part of them, and leave the rest for files and so on."""

from __future__ import annotations

import resource

ENOUGH = 1 << 16
"""No process of a deployment needs more."""


def raise_limit() -> None:
    """Let this process have as many descriptors as its hard limit allows, if it is not enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def allowed() -> int:
    """How many this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return ENOUGH if soft == resource.RLIM_INFINITY else soft


def connections_within(wanted: int, descriptors: int) -> int:
    """The connections that are taken: never more than half of the descriptors.

    >>> connections_within(512, 20_000), connections_within(512, 256)
    (512, 128)
    """
    return max(1, min(wanted, descriptors // 2))
