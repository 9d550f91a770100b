"""What every test shares, so that it gives the same verdict on every machine."""

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from tests import jvm, scheduling

# In the background of a shell the signal is ignored, also by every command that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A slow machine must not fail a property that holds; pytest-timeout bounds the whole test.
settings.register_profile("tidegate", deadline=None, print_blob=True)
settings.load_profile("tidegate")

os.environ.update({name: value for name, value in jvm.options().items() if name not in os.environ})

MARKERS = {
    "tests/crash/": ("processes", "chaos"),
    "tests/integration/cluster/": ("processes",),
    "tests/integration/engines/": ("processes", "spark"),
    "tests/integration/group/": ("processes",),
    "tests/integration/dataflow/test_compiled.py": ("compiled", "processes"),
}
"""By the beginning of a test's path; whatever uses the fixture `spark` has that marker as well."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(scheduling.OPTION, action="store_true", help="write tests/durations.txt anew")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption(scheduling.OPTION) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(scheduling.DurationRecorder())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
        for beginning, markers in MARKERS.items():
            if item.nodeid.startswith(beginning):
                for marker in markers:
                    item.add_marker(marker)
    if hasattr(config, "workerinput"):
        scheduling.sort_longest_first(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling | None:
    if config.getoption("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False
    return scheduling.LongestFirst(config, log)


@pytest.fixture(autouse=True)
def restored_umask() -> Iterator[None]:
    """Commands that run in the process of the tests change its umask for good."""
    before = os.umask(0o022)
    yield
    os.umask(before)
