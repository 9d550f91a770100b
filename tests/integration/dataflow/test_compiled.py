"""The compiled form of `tidegate.dataflow` keeps what the plain one promises.

It is built once, into a folder of its own, from the same recipe as wheels.
"""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from bench._compiled import ROOT, compile_package, on_path, why_not

REASON = why_not()
pytestmark = [
    pytest.mark.skipif(REASON is not None, reason=f"nothing can be compiled: {REASON}"),
    pytest.mark.timeout(900),
]

LOOPS = ROOT / "bench/_injector_loops.py"
TESTS = ("tests/unit/dataflow", "tests/integration/dataflow/test_barriers_flow.py")
BOUND = 300

CHASE = """
import json, sys, threading
import tidegate.dataflow.injector as module, _injector_loops as loops
from tidegate.dataflow import BarrierInjector

injector = BarrierInjector("sales")
handle = injector.handle()
published = []
publisher = threading.Thread(
    target=lambda: published.append(loops.publish_until(injector, handle, 50)), daemon=True
)
publisher.start()
polls, taken = loops.poll_until(injector, 50)
publisher.join(60)
json.dump({
    "files": [module.__file__, loops.__file__],
    "published": published[0],
    "polls": polls,
    "taken": [(b.checkpoint_id, b.epoch, b.is_unaligned) for b in taken],
}, sys.stdout)
"""

COUNT = """
import json, sys
import allocations, _injector_loops as loops
from tidegate.dataflow import BarrierInjector

def allocations_of(injector):
    loops.poll(injector, 100_000)
    allocations.start()
    loops.poll(injector, 5_000_000)
    return allocations.stop()

allocations.start()
control = [object() for _ in range(1000)]
json.dump({
    "control": allocations.stop(),
    "plain": allocations_of(BarrierInjector("sales")),
    "periodic": allocations_of(BarrierInjector("sales", request=lambda: None)),
}, sys.stdout)
"""


@pytest.fixture(scope="module")
def compiled() -> Iterator[Path]:
    with TemporaryDirectory(prefix="tidegate-") as folder:
        yield compile_package(Path(folder), [LOOPS])


def run(code: str, compiled: Path) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=on_path(compiled),
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, object] = json.loads(done.stdout)
    return report


def test_the_unit_tests_pass_on_the_compiled_modules(compiled: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *TESTS],
        cwd=ROOT,
        env=on_path(compiled),
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    promised = runpy.run_path(str(ROOT / "setup.py"))["COMPILED"]
    assert f"tidegate.dataflow: compiled: {', '.join(promised)}\n" in done.stdout
    assert " passed" in done.stdout


def test_compiled_loops_let_each_other_run_and_see_whole_barriers(compiled: Path) -> None:
    """Neither loop ever pauses by itself: without giving way one of them would spin without end."""
    report = run(CHASE, compiled)
    assert all(str(file).endswith(".so") for file in _list(report["files"]))
    taken = _list(report["taken"])
    ids = [id for id, _, _ in taken]
    assert len(ids) == 50
    assert ids == sorted(set(ids))
    assert all((epoch, unaligned) == (id * 3, id % 2 == 1) for id, epoch, unaligned in taken)
    assert _number(report["published"]) >= ids[-1] >= 50
    assert _number(report["polls"]) >= 50


def test_a_compiled_poll_in_vain_asks_for_no_memory(compiled: Path) -> None:
    report = run(COUNT, compiled)
    assert _number(report["control"]) >= 1000, "the counter works"
    few = 10  # for the call of the loop itself
    assert _number(report["plain"]) <= few
    assert _number(report["periodic"]) <= few


def _list(value: object) -> list[tuple[int, int, bool]]:
    assert isinstance(value, list)
    return value


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value
