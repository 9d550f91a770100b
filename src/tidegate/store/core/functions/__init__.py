"""Functions, views and triggers of the database: each is defined once, in a file of this folder.

They are recreated when the digest of these files differs from the recorded one, unless a later
release created them: while workers of two releases run side by side, the later release's version
stays. A function whose arguments change, or a view that loses a column, is dropped in its file
before it is created.
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

MIGRATIONS = "tidegate.store.core.migrations"


def create_functions(connection: psycopg.Connection) -> None:
    """Bring functions up to date. Safe to call from several processes at once."""
    sql = queries(MIGRATIONS)
    with connection.transaction():
        if _are_current(connection):
            return
        connection.execute(sql["lock"].sql)
        if _are_current(connection):
            return
        connection.execute(sql["defer_bodies"].sql)
        connection.execute(function_files())
        connection.execute(sql["record_functions"].sql, (_release(), _digest()))
        crash_point("migration.before_commit")


@cache
def function_files() -> bytes:
    """All files in the order of their names, as one script."""
    found = (file for file in files(__name__).iterdir() if file.name.endswith(".sql"))
    return b"\n".join(file.read_bytes() for file in sorted(found, key=lambda file: file.name))


def is_earlier(release: str, other: str) -> bool:
    """Whether a release came before another.

    >>> is_earlier("0.9.1", "0.10.0"), is_earlier("1.0.0", "1.0.0rc2"), is_earlier("1.1", "1.0.3")
    (True, False, False)
    """
    return _numbers(release) < _numbers(other)


def _numbers(release: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", release)[:3]]


def _are_current(connection: psycopg.Connection) -> bool:
    row = connection.execute(queries(MIGRATIONS)["function_version"].sql).fetchone()
    if row is None:
        return False
    release, digest = row
    return digest == _digest() or is_earlier(_release(), release)


@cache
def _release() -> str:
    return version("tidegate")


@cache
def _digest() -> str:
    return sha256(function_files()).hexdigest()
