"""What every test shares, so that it gives the same verdict on every machine."""

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

# In the background of a shell the signal is ignored, also by every command that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A slow machine must not fail a property that holds; pytest-timeout bounds the whole test.
settings.register_profile("tidegate", deadline=None, print_blob=True)
settings.load_profile("tidegate")


@pytest.fixture(autouse=True)
def restored_umask() -> Iterator[None]:
    """Commands that run in the process of the tests change its umask for good."""
    before = os.umask(0o022)
    yield
    os.umask(before)
