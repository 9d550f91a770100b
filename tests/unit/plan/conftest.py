"""Shared by the tests of rules: a shop on four shards, and its sales."""

from __future__ import annotations

import pytest

import tidegate as tg


@pytest.fixture
def sales(shop: tg.Pipeline) -> tg.Stream:
    return shop.source("sales", "a int, b int, c int, d int")
