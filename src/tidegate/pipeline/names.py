"""Names of declared things: which are allowed, and which are in use."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from tidegate.errors import DuplicateName, InvalidArgument, InvalidName

if TYPE_CHECKING:
    from tidegate.errors import SourceLine

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class _Declared(Protocol):
    @property
    def at(self) -> SourceLine: ...


T = TypeVar("T", bound=_Declared)


class Register(Mapping[str, T], Generic[T]):
    """The declared nodes of one kind by name, in the order of declaration."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._nodes: dict[str, T] = {}
        self._folded: dict[str, SourceLine] = {}

    def declare(self, name: str, node: T, at: SourceLine) -> T:
        """Register `node` under `name`; raises if it is in use or not a valid file name."""
        check_name(self.kind, name, at)
        # Results become files, and on some file systems Q1.csv and q1.csv are the same file.
        first = self._folded.setdefault(name.casefold(), at)
        if name in self._nodes or first is not at:
            raise DuplicateName(at, self.kind, name, first)
        self._nodes[name] = node
        return node

    def __getitem__(self, name: str) -> T:
        return self._nodes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)


def check_name(kind: str, name: str, at: SourceLine) -> None:
    """Raise `InvalidName` unless `name` is safe as a file name on all systems."""
    if not is_file_name(name):
        raise InvalidName(at, kind, name)


def is_file_name(name: object) -> bool:
    """Whether `name` is safe as a file name on all systems, without a path.

    >>> is_file_name("best_selling"), is_file_name("../best"), is_file_name("/etc")
    (True, False, False)
    """
    return isinstance(name, str) and _FILE_NAME.fullmatch(name) is not None


def column_names(
    operator: str, argument: str, given: str | Iterable[str], at: SourceLine
) -> tuple[str, ...]:
    """One name or several as a tuple; raises unless all are plain, distinct column names."""
    names = texts(operator, argument, given, at)
    for name in names:
        if not is_identifier(name):
            expected = "names of columns; compute expressions in a select before"
            raise InvalidArgument(at, operator, argument, name, expected)
    if first_repeated(names) is not None:
        raise InvalidArgument(at, operator, argument, given, "each column once")
    return names


def texts(operator: str, argument: str, given: object, at: SourceLine) -> tuple[str, ...]:
    """One text or several as a tuple; raises `InvalidArgument` for anything else."""
    several = (given,) if isinstance(given, str) or not isinstance(given, Iterable) else given
    found = tuple(several)
    if not all(isinstance(it, str) for it in found):
        raise InvalidArgument(at, operator, argument, given, "text, or several texts in a list")
    return found


def named_texts(
    operator: str, given: Mapping[str, str] | None, at: SourceLine
) -> Mapping[str, str]:
    """The columns given, none for None; raises `InvalidArgument` unless it is a mapping."""
    columns: object = {} if given is None else given
    if not isinstance(columns, Mapping) or not all(isinstance(name, str) for name in columns):
        expected = "a mapping from names to SQL, such as {'total price': 'price * 2'}"
        raise InvalidArgument(at, operator, "columns", given, expected)
    return columns


def is_text(given: object) -> bool:
    """Whether `given` is text, for users without a type checker."""
    return isinstance(given, str)


def is_identifier(name: object) -> bool:
    """Whether SQL accepts this column name without quotes."""
    return isinstance(name, str) and _IDENTIFIER.fullmatch(name) is not None


def first_repeated(names: Iterable[str]) -> str | None:
    """The first name that is repeated, compared without case as in Spark."""
    seen: set[str] = set()
    for name in names:
        if name.casefold() in seen:
            return name
        seen.add(name.casefold())
    return None
