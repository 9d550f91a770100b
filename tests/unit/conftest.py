"""What unit tests of several packages share."""

from __future__ import annotations

import pytest

import tidegate as tg


@pytest.fixture
def shop() -> tg.Pipeline:
    """A pipeline in which nothing is declared yet."""
    return tg.Pipeline("shop", shards=4)
