"""Base class of the values of this package: immutable, and equal when their fields are.

Values are written by hand instead of as dataclasses, because mypyc does not keep frozen dataclasses
frozen. Assigning by `object.__setattr__` with a literal name is plain Python, and is compiled into
one store.
"""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import ClassVar

from mypy_extensions import mypyc_attr


@mypyc_attr(acyclic=True)
class Value:
    """Frozen, compared and hashed by its fields, with the repr of a dataclass."""

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]] = ()

    def _fields(self) -> tuple[object, ...]:
        """The arguments that make an equal value, in the order of `__match_args__`."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        assert isinstance(other, Value)
        return self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:
        named = zip(type(self).__match_args__, self._fields(), strict=True)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in named)})"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self._fields()

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")
