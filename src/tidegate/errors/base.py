"""The root of the tree, and how numbers and names are put into its sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, dataclass_transform


@dataclass_transform(eq_default=False)
@dataclass(eq=False)
class TidegateError(Exception):
    """Root of the tree. Subclasses are dataclasses; `message` is filled from their fields."""

    message: ClassVar[str] = "Tidegate failed"
    retryable: ClassVar[bool] = False
    """Whether the same call may succeed later."""
    http_status: ClassVar[int] = 500

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclass(eq=False)(cls)

    @property
    def condition(self) -> str:
        """The stable name of what went wrong, for programs."""
        return type(self).__name__

    def __str__(self) -> str:
        return self.message.format_map(vars(self))

    def __reduce__(self) -> tuple[object, ...]:
        # Fields may have been given by keyword, which Exception's own pickling forgets.
        return _rebuild, (type(self), dict(vars(self)))


def listed(names: Sequence[str], most: int = 6) -> str:
    """Names for a sentence, the first few of many.

    >>> listed(["s1", "s2", "s3"], most=2)
    's1, s2 and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more or "none"


def counted(number: int, of: str) -> str:
    """A number of things for a sentence.

    >>> counted(1, "chunk"), counted(2000, "chunk")
    ('1 chunk', '2,000 chunks')
    """
    return f"{number:,} {of}" if number == 1 else f"{number:,} {of}s"


def _rebuild(kind: type[TidegateError], fields: dict[str, object]) -> TidegateError:
    error = kind.__new__(kind)
    vars(error).update(fields)
    return error
