"""Loads the SQL statements of a module from the `.sql` file beside it.

Each statement follows a line with its name and description:

    -- name: renew — Extend the leases that are still held.
    UPDATE …

Each statement is executed by one Python function, which gives its parameters their types.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from psycopg.sql import SQL, Composable, Composed

HEADING = re.compile(r"^-- name: (?P<name>[a-z_]+) — (?P<description>.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Query:
    """One statement. Its text is bytes because psycopg takes a str only from source code."""

    name: str
    description: str
    sql: bytes

    def composed(self, parts: Mapping[str, Composable]) -> Composed:
        """The statement with its placeholders replaced by parts of SQL, such as identifiers."""
        return SQL(self.sql.decode().removesuffix(";")).format(**parts)


@cache
def queries(module: str) -> dict[str, Query]:
    """All statements of the `.sql` file beside a module, by name."""
    package, _, name = module.rpartition(".")
    return parse(files(package).joinpath(f"{name}.sql").read_text())


def parse(text: str) -> dict[str, Query]:
    """Split the text of a file at its headings.

    >>> parse("-- name: one — Return one.\\nSELECT 1;\\n")["one"].sql
    b'SELECT 1;'
    """
    headings = list(HEADING.finditer(text))
    ends = [heading.start() for heading in headings[1:]] + [len(text)]
    found: dict[str, Query] = {}
    for heading, end in zip(headings, ends, strict=True):
        name = heading["name"]
        if name in found:
            raise ValueError(f"two queries are named {name!r}")
        statement = text[heading.end() : end].strip().encode()
        found[name] = Query(name, heading["description"], statement)
    return found
