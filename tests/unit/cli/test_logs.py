"""Logs of the processes of a deployment, which begin one each."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}"


def said_by(program: str) -> str:
    asked = [
        sys.executable,
        "-c",
        f"import logging; from tidegate.cli.processes.logs import *; {program}",
    ]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True)
    return done.stderr


def test_every_line_of_a_log_file_has_a_time() -> None:
    program = "begin_log(is_kept=True)('at work'); logging.getLogger('py').warning('odd')"

    at_work, odd = said_by(program).splitlines()
    assert re.fullmatch(rf"{TIME} INFO tidegate\.cli\.processes\.logs: at work", at_work)
    assert re.fullmatch(rf"{TIME} WARNING py: odd", odd)


def test_at_a_terminal_people_are_spoken_to() -> None:
    assert said_by("begin_log(is_kept=False)('at work')") == "at work\n"


def test_lines_on_the_terminal_are_also_logged(tmp_path: Path) -> None:
    file = tmp_path / "up.log"

    assert said_by(f"begin_log_in({str(file)!r})('worker-1 is back')") == "worker-1 is back\n"
    assert re.fullmatch(
        rf"{TIME} INFO tidegate\.cli\.processes\.logs: worker-1 is back\n", file.read_text()
    )
