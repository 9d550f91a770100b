"""State keys: named, typed values through which the steps of a run coordinate.

Steps declare which keys they write and read. A reader is a snapshot of the state; a predicate that
reads a key without a value does not hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Annotated, Any, Generic, TypeVar, get_args, get_origin, overload
from uuid import UUID

import msgspec

from tidegate.errors import SourceLine, StateUndeclared
from tidegate.flows.model.codecs import Codec

T = TypeVar("T")
ORDERED = (int, float, str, bool, date, UUID)
ORDERED_NAMES = "int, float, str, bool, date and UUID"


def has_order(type_: Any) -> bool:
    """Whether values are in the same order as their JSON, by which PostgreSQL compares them.

    >>> from decimal import Decimal
    >>> has_order(int), has_order(Decimal)  # as text "9" comes behind "10"
    (True, False)
    """
    plain = get_args(type_)[0] if get_origin(type_) is Annotated else type_
    return plain in ORDERED


@dataclass(frozen=True)
class StateKey(Generic[T]):
    """A key of the state of a flow."""

    at: SourceLine = field(repr=False, compare=False)
    name: str
    codec: Codec = field(repr=False, compare=False)
    is_monotonic: bool = False
    """It never decreases; a smaller value is refused."""
    is_external: bool = False
    """It is written from outside of the flow."""


@dataclass(frozen=True, slots=True)
class StateValue:
    """A stored value and its last writer."""

    json: str | None
    writer: str = ""
    version: int = 0
    age: float | None = None
    """Seconds since the write, by the clock of the database."""

    @property
    def number(self) -> int | float | None:
        """The value, if it is a number."""
        return number_in(self.json)


def number_in(text: str | None) -> int | float | None:
    """A number that is stored as JSON; None for anything else.

    >>> number_in("4100"), number_in("true"), number_in("9" * 5000), number_in(None)
    (4100, None, None, None)
    """
    try:
        value = None if text is None else msgspec.json.decode(text)
    except ValueError:  # more digits than Python reads
        return None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


class NotThereYet(Exception):
    """A predicate has read a key without a value."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


class FlowStateReader:
    """A snapshot of the state of a run, for the keys that a step declares in `reads`.

    `reader[key]` is the value; if there is none, the predicate that reads it does not hold.
    `reader.get(key)` is None then.
    """

    def __init__(
        self, step: str, keys: Mapping[str, StateKey[Any]], values: Mapping[str, StateValue]
    ) -> None:
        self._step = step
        self._keys = keys
        self._values = values
        self.asked: list[str] = []
        """The keys that were read, in order."""

    @overload
    def __getitem__(self, key: StateKey[T]) -> T: ...
    @overload
    def __getitem__(self, key: str) -> Any: ...
    def __getitem__(self, key: StateKey[T] | str) -> Any:
        found = self._find(key)
        stored = self._values.get(found.name)
        if stored is None or stored.json is None:
            raise NotThereYet(found.name)
        return found.codec.decode(stored.json)

    @overload
    def get(self, key: StateKey[T]) -> T | None: ...
    @overload
    def get(self, key: str) -> Any: ...
    def get(self, key: StateKey[T] | str) -> Any:
        """The value, or None if there is none."""
        try:
            return self[key]
        except NotThereYet:
            return None

    def _find(self, key: StateKey[Any] | str) -> StateKey[Any]:
        name = key if isinstance(key, str) else key.name
        if name not in self._keys:
            raise StateUndeclared(f"step {self._step!r}", "read", name)
        self.asked.append(name)
        return self._keys[name]
