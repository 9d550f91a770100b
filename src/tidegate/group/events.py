"""What happens in a group, as log records that programs can read.

    barrier.settled barrier='nightly' round=4 rendezvous='satisfied' …

The name stands in the record's `event`, the rest in its `facts`.
"""

from __future__ import annotations

import logging

log = logging.getLogger("tidegate.group")


def tell(event: str, level: int = logging.INFO, /, **facts: object) -> None:
    """Log one event."""
    if log.isEnabledFor(level):
        told = " ".join(f"{name}={value!r}" for name, value in facts.items())
        log.log(level, "%s %s", event, told, extra={"event": event, "facts": facts})
