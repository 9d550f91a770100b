"""Functions, views and triggers of the database: each stands once, in a file of this folder.

They are made anew when these files are not the ones that made them, by any release but an earlier
one: while workers of two releases run side by side, the later one's stay. What cannot be replaced,
a function whose arguments change or a view that loses a column, is dropped in its file before.
"""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files

import psycopg

from tidegate.faults import crash_point
from tidegate.store.core.queries import queries


def make_functions(connection: psycopg.Connection) -> None:
    """Bring them up to date. Several processes may do so at once; it happens once."""
    asked = queries("tidegate.store.core.migrations")
    with connection.transaction():
        if _are_made(connection):
            return
        connection.execute(asked["take_turn"].sql)
        if _are_made(connection):
            return
        connection.execute(asked["defer_bodies"].sql)
        connection.execute(function_files())
        connection.execute(asked["note_functions"].sql, (_release(), _digest()))
        crash_point("migration.before_commit")


@cache
def function_files() -> bytes:
    """All files in the order of their names, as one script."""
    found = (it for it in files(__name__).iterdir() if it.name.endswith(".sql"))
    return b"\n".join(it.read_bytes() for it in sorted(found, key=lambda it: it.name))


def is_earlier(release: str, other: str) -> bool:
    """Whether a release came before another.

    >>> is_earlier("0.9.1", "0.10.0"), is_earlier("1.0.0", "1.0.0rc2"), is_earlier("1.1", "1.0.3")
    (True, False, False)
    """
    return _numbers(release) < _numbers(other)


def _numbers(release: str) -> list[int]:
    return [int(it) for it in re.findall(r"\d+", release)[:3]]


def _are_made(connection: psycopg.Connection) -> bool:
    made = connection.execute(
        queries("tidegate.store.core.migrations")["functions_made"].sql
    ).fetchone()
    if made is None:
        return False
    release, digest = made
    return digest == _digest() or is_earlier(_release(), release)


@cache
def _release() -> str:
    return version("tidegate")


@cache
def _digest() -> str:
    return sha256(function_files()).hexdigest()
