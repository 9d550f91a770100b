"""Line breaks within quoted fields of CSV: where records end, and whether a file has such breaks.

A file is read with line breaks in its fields only if its quotes are unambiguous: they enclose whole
fields, are doubled within them, and every record ends like the header. In any other file a line is
a record, whatever its quotes: a stray quote must not hide the lines behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    Bytes = npt.NDArray[np.uint8]
    Places = npt.NDArray[np.intp]

LONGEST_RECORD = 32 << 20
_MARK = b"\xef\xbb\xbf"
_LINE_FEED, _RETURN, _QUOTE, _COMMA = b'\n\r",'


class BadQuotes(ValueError):
    """Quotes do not enclose whole fields, or a record is too long."""


def records(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Whole records, as many as a piece has; the first without a byte order mark.

    Raises `BadQuotes` for a record that is longer than 32 MiB.
    """
    rest, mark, is_quoted = b"", _MARK, False
    for piece in pieces:
        end, ends_quoted = _last_end(piece, is_quoted=is_quoted)
        if end:
            yield (rest + piece[:end]).removeprefix(mark)
            rest, mark = b"", b""
        rest, is_quoted = rest + piece[end:], ends_quoted
        if len(rest) > LONGEST_RECORD:
            raise BadQuotes("a very long record")
    if rest := rest.removeprefix(mark):
        yield rest


def end_of_long_records(pieces: Iterable[bytes]) -> str:
    """The line end of a file if fields certainly continue in the next line; else empty.

    >>> end_of_long_records([b'id,name\\r\\n1,"two\\nlines"\\r\\n'])
    '\\r\\n'
    """
    scan = BreakScan()
    try:
        for block in records(pieces):
            check_quotes(np.frombuffer(block, np.uint8))
            scan.add(block)
    except BadQuotes:
        return ""
    return scan.end if scan.found else ""


class BreakScan:
    """Finds quoted line breaks in the blocks of a file, which have whole records."""

    def __init__(self) -> None:
        self.found = False
        self._are_alike = True
        self._returns: bool | None = None
        """Whether the header ends with a carriage return."""

    @property
    def end(self) -> str:
        """How the header ends."""
        return "\r\n" if self._returns else "\n"

    def add(self, block: bytes) -> int:
        """The number of records that end in the next block.

        Raises `BadQuotes` if the file has quoted breaks, and its records do not end alike.
        """
        if self._returns is None:
            self._returns = _ends_with_return(block)
        breaks = _Breaks.of(block)
        self.found |= breaks.quoted > 0
        expected = breaks.feeds if self._returns else 0
        self._are_alike &= breaks.returns == expected == breaks.both
        if self.found and not self._are_alike:
            raise BadQuotes("line breaks in fields of records that do not end alike")
        return breaks.feeds


class _Breaks(NamedTuple):
    """The numbers of line feeds and carriage returns of a block outside of quotes, and within."""

    feeds: int
    returns: int
    both: int
    """Line feeds behind a carriage return."""
    quoted: int

    @classmethod
    def of(cls, block: bytes) -> _Breaks:
        # numpy counts bytes ten times as fast as `bytes.count`.
        letters = np.frombuffer(block, np.uint8)
        places, quoted, _ = _outside(letters) if b'"' in block else (None, 0, False)
        kinds = letters if places is None else letters[places]
        feeds, returns = (int(np.count_nonzero(kinds == it)) for it in (_LINE_FEED, _RETURN))
        is_both = (kinds[:-1] == _RETURN) & (kinds[1:] == _LINE_FEED) if returns else kinds[:0] != 0
        if places is not None and returns:
            is_both &= np.diff(places) == 1
        return cls(feeds, returns, int(np.count_nonzero(is_both)), quoted)


def _outside(letters: Bytes, *, is_quoted: bool = False) -> tuple[Places, int, bool]:
    """The line breaks outside of quotes, the number within, and whether the end is quoted."""
    places = np.flatnonzero((letters == _QUOTE) | (letters == _LINE_FEED) | (letters == _RETURN))
    kinds = letters[places]
    is_quote = kinds == _QUOTE
    # The sum overflows, and stays odd or even.
    within = (np.cumsum(is_quote, dtype=np.uint8) + np.uint8(is_quoted)) & np.uint8(1)
    is_break = ~is_quote
    outside = places[is_break & (within == 0)]
    return outside, int(np.count_nonzero(is_break)) - len(outside), bool(within[-1])


def field_ends(letters: Bytes) -> tuple[Places, npt.NDArray[np.bool_]]:
    """The ends of all fields of whole records, and which of them end a record."""
    is_end = (letters == _COMMA) | (letters == _LINE_FEED)
    places = np.flatnonzero((letters == _QUOTE) | is_end)
    within = np.cumsum(letters[places] == _QUOTE, dtype=np.uint8) & np.uint8(1)
    ends = places[is_end[places] & (within == 0)]
    is_line_end = letters[ends] == _LINE_FEED
    if len(letters) and not (len(ends) and ends[-1] == len(letters) - 1):
        ends, is_line_end = np.append(ends, len(letters)), np.append(is_line_end, True)
    return ends, is_line_end


def check_quotes(letters: Bytes) -> None:
    """Raise `BadQuotes` unless quotes enclose whole fields, and are doubled within them.

    Every other quote opens: at the start of a field, or as the second of a doubled one.
    """
    places = np.flatnonzero(letters == _QUOTE)
    if len(places) == 0:
        return
    if len(places) % 2:
        raise BadQuotes("a quote that is not closed")
    opening, closing = places[::2], places[1::2]
    before = letters[opening - 1]  # of the very first letter, the last one: corrected below
    after = letters[np.minimum(closing + 1, len(letters) - 1)]
    opens = (before == _COMMA) | (before == _LINE_FEED)
    closes = (after == _COMMA) | (after == _LINE_FEED) | (after == _RETURN)
    opens[0] |= opening[0] == 0
    closes[-1] |= closing[-1] == len(letters) - 1
    if not (opens.all() and closes.all()):
        doubled = closing[:-1] + 1 == opening[1:]
        opens[1:] |= doubled
        closes[:-1] |= doubled
        if not (opens.all() and closes.all()):
            raise BadQuotes("a quote within a field")


def _last_end(piece: bytes, *, is_quoted: bool) -> tuple[int, bool]:
    """The end of the last whole record of a piece, and whether the piece ends quoted."""
    if b'"' not in piece:
        return (0 if is_quoted else piece.rfind(b"\n") + 1), is_quoted
    letters = np.frombuffer(piece, np.uint8)
    places, _, ends_quoted = _outside(letters, is_quoted=is_quoted)
    feeds = places[letters[places] == _LINE_FEED]  # a search from the end may be quadratic
    return (int(feeds[-1]) + 1 if len(feeds) else 0), ends_quoted


def _ends_with_return(block: bytes) -> bool:
    """Whether the header, which the block begins with, ends with a carriage return."""
    end = block.find(b"\n")
    if block.count(b'"', 0, end) % 2:
        raise BadQuotes("a header of several lines")
    return end > 0 and block[end - 1 : end] == b"\r"
