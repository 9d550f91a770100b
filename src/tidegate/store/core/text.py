"""Makes error messages and reasons storable in PostgreSQL.

Such text quotes client data, so it may contain what a `text` or `jsonb` column refuses: NUL
characters and lone surrogates. It may also be as long as the data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tidegate.errors import ValueRefused
from tidegate.store.flows.sql_errors import is_value_refused

MOST_CHARACTERS = 8_000
"""Longest stored text of an error or a reason."""


def storable(text: str, most: int = MOST_CHARACTERS) -> str:
    r"""A text that PostgreSQL accepts: refused characters are escaped, long text is truncated.

    >>> print(storable("a\x00b\ud800c"))
    a\0b\ud800c
    >>> storable("abcdef", most=4)
    'abc…'
    """
    head = text[: most + 1].encode(errors="backslashreplace").decode().replace("\0", r"\0")
    return head if len(head) <= most else head[: most - 1] + "…"


def plain(text: str, most: int = MOST_CHARACTERS) -> str:
    r"""Like `storable`, in ASCII, which a database of any encoding accepts.

    >>> print(plain("é\0"))
    \xe9\0
    """
    ascii_only = text[: most + 1].encode("ascii", "backslashreplace").decode()
    return storable(ascii_only, most).replace("…", "~")


@contextmanager
def refused_values(task: str, runs: Sequence[str]) -> Iterator[None]:
    """Raise `ValueRefused` for what PostgreSQL cannot store; names the run if there is only one."""
    try:
        yield
    except Exception as error:
        if not is_value_refused(error):
            raise
        reason = plain(str(error).partition("\n")[0])
        raise ValueRefused(task, reason, runs[0] if len(runs) == 1 else "") from error
