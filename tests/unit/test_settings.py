"""Settings: what may be given, and what is refused."""

from __future__ import annotations

import pytest

from tidegate.errors import InvalidSetting
from tidegate.settings import KNOWN, PREFIX, Settings, parse, set_in_environment


def test_an_empty_environment_gives_the_defaults() -> None:
    assert Settings.from_environment({}) == Settings()


def test_a_setting_of_the_environment_replaces_its_default() -> None:
    given: dict[str, str] = {}
    set_in_environment(given, ["chunk_value_bytes=1KiB"])
    assert Settings.from_environment(given).chunk_value_bytes == 1024


@pytest.mark.parametrize("text", ["", "=", "no_such=1", "chunk_value_bytes=much"])
def test_an_unknown_name_or_value_is_refused(text: str) -> None:
    with pytest.raises(InvalidSetting):
        set_in_environment({}, [text])


@pytest.mark.parametrize("text", ["-1", "nan", "inf"])
def test_a_number_below_zero_or_without_end_is_refused(text: str) -> None:
    with pytest.raises(InvalidSetting):
        parse("chunk_value_bytes", text)


def test_every_setting_has_a_unit_and_a_meaning() -> None:
    assert all(it.unit and it.meaning for it in KNOWN.values())
    assert PREFIX.isupper()


def test_each_chunk_that_is_delivered_at_once_has_a_checker() -> None:
    """Otherwise chunks of one client could wait for those of another."""
    assert Settings().chunk_checkers >= Settings().http_deliveries
