"""Splits a byte stream into frames."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.errors import MalformedFrame
from tidegate.group.protocol.wire import HEADER, Frame, header

READ_SIZE = 1 << 16


class Frames:
    """Collects bytes into frames; raises `MalformedFrame` as soon as they cannot become one."""

    def __init__(self, only: type[Frame] | None = None) -> None:
        self._rest = b""
        self.only = only
        """The only accepted frame type, until the peer has authenticated."""

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that these bytes complete."""
        data = self._rest + data if self._rest else data
        start, size = 0, len(data)
        try:
            while size - start >= HEADER.size:
                kind, length = header(data, start)
                if self.only is not None and kind is not self.only:
                    raise MalformedFrame(f"{kind.__name__} where {self.only.__name__} is expected")
                body = start + HEADER.size
                if size < body + length:
                    break
                start = body + length
                yield kind.parse(data[body:start])
        finally:
            self._rest = data[start:]
