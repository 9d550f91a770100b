"""Ids of lease owners: the name of a process and a part that is unique to each registration."""

from __future__ import annotations

import re
from uuid import uuid4

LONGEST = 48
"""Characters of the process name: owner ids are parts of file paths."""


def new_owner_id(process: str) -> str:
    """A unique id that begins with the name of the process, if it has one.

    >>> new_owner_id("worker-1")[:-12], len(new_owner_id(""))
    ('worker-1-', 12)
    >>> new_owner_id("Jo's, night/shift " * 9)[:-12]
    'Jo-s-night-shift-Jo-s-night-shift-Jo-s-night-shi-'
    """
    name = re.sub(r"[^A-Za-z0-9]+", "-", process)[:LONGEST].strip("-")
    unique = uuid4().hex[:12]
    return f"{name}-{unique}" if name else unique
