"""File descriptors: connections may use a part of them; the rest is for files and databases."""

from __future__ import annotations

import resource

ENOUGH = 1 << 16
"""More than any process of a deployment needs."""


def raise_limit() -> None:
    """Raise the soft limit of this process towards its hard limit, up to `ENOUGH`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))


def allowed() -> int:
    """The soft limit of this process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return ENOUGH if soft == resource.RLIM_INFINITY else soft


def connections_within(setting: int, descriptors: int) -> int:
    """The connections that are accepted: never more than half of the descriptors.

    >>> connections_within(512, 20_000), connections_within(512, 256)
    (512, 128)
    """
    return max(1, min(setting, descriptors // 2))
