"""Names of owners of leases: what people call a process, and what no other life of it is called."""

from __future__ import annotations

import re
from uuid import uuid4

LONGEST = 48
"""Characters of what people call a process: names of owners stand in paths."""


def new_owner_id(process: str) -> str:
    """A name for one life of a process; without a name of its own it has no more than that.

    >>> new_owner_id("worker-1")[:-12], len(new_owner_id(""))
    ('worker-1-', 12)
    >>> new_owner_id("Jo's, night/shift " * 9)[:-12]
    'Jo-s-night-shift-Jo-s-night-shift-Jo-s-night-shi-'
    """
    called = re.sub(r"[^A-Za-z0-9]+", "-", process)[:LONGEST].strip("-")
    life = uuid4().hex[:12]
    return f"{called}-{life}" if called else life
