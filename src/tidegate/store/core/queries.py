"""Loads the SQL statements that stand in a file beside each module of the store.

Each statement follows a line with its name and description:

    -- name: renew — Put off the expiry of leases that are still held.
    UPDATE …

The statement is called by one Python method, which is where its parameters get their types.
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
        """With parts of SQL, such as names, where they belong; it may become a part itself."""
        return SQL(self.sql.decode().removesuffix(";")).format(**parts)


@cache
def queries(module: str) -> dict[str, Query]:
    """All statements of the `.sql` file beside a module, by name."""
    package, _, name = module.rpartition(".")
    return parse(files(package).joinpath(f"{name}.sql").read_text())


def parse(text: str) -> dict[str, Query]:
    """Split the text of a file at its headings.

    >>> parse("-- name: one — Say one.\\nSELECT 1;\\n")["one"].sql
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
