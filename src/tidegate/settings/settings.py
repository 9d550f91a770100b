"""All settings of a deployment, and how they are given as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Self

from tidegate.errors import InvalidSetting
from tidegate.settings.topics import (
    ChunkSettings,
    HttpSettings,
    LogSettings,
    MonitorSettings,
    RunSettings,
    StoreSettings,
    TaskSettings,
)

PREFIX = "TIDEGATE_"
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?B)?", re.IGNORECASE)
_POWERS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


@dataclass(frozen=True, kw_only=True)
class Settings(
    ChunkSettings,
    HttpSettings,
    StoreSettings,
    RunSettings,
    TaskSettings,
    MonitorSettings,
    LogSettings,
):
    """The values of all settings."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """The settings in the environment, and defaults for the rest. Raises `InvalidSetting`."""
        given: dict[str, Any] = {
            name: parse(name, environment[PREFIX + name.upper()])
            for name in KNOWN
            if PREFIX + name.upper() in environment
        }
        return cls(**given)


class SettingInfo(NamedTuple):
    """A setting, as `tidegate settings` lists it."""

    name: str
    default: Any
    unit: str
    meaning: str


KNOWN = {
    each.name: SettingInfo(each.name, each.default, each.metadata["unit"], each.metadata["meaning"])
    for each in fields(Settings)
}
DEFAULTS = Settings()


def parse(name: str, text: str) -> int | float:
    """The value of a setting, parsed from text. Raises `InvalidSetting`.

    >>> parse("chunk_value_bytes", "2MiB")
    2097152
    """
    if name not in KNOWN:
        raise InvalidSetting(name, text, f"the settings are {', '.join(sorted(KNOWN))}")
    described = KNOWN[name]
    try:
        value = _size(text) if described.unit == "bytes" else type(described.default)(text)
    except ValueError:
        raise InvalidSetting(name, text, f"a number of {described.unit} is expected") from None
    if not 0 <= value < float("inf"):
        raise InvalidSetting(name, text, "a number of at least 0 is expected")
    return value


def set_in_environment(environment: MutableMapping[str, str], given: Iterable[str]) -> None:
    """Set `NAME=VALUE` settings in an environment. Raises `InvalidSetting`."""
    for each in given:
        name, _, text = each.partition("=")
        parse(name, text)
        environment[PREFIX + name.upper()] = text


def _size(text: str) -> int:
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(text)
    return int(float(found[1]) * (1 << _POWERS[found[2].upper()]))
