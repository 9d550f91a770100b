"""The example that reads a site of unknown size, with the worker killed that discovers it."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from tidegate_examples.demo_output import DemoOutput
from tidegate_examples.discover.demo import show


@pytest.mark.timeout(300)
def test_a_site_is_read_once_although_its_discoverer_is_killed() -> None:
    said = StringIO()
    show(DemoOutput(Console(file=said, width=200)), articles=1500)
    assert "the worker that reads the lists is killed" in said.getvalue()
    assert "1,486 articles" in said.getvalue()
