"""A server in a process of its own, with as few descriptors as is said: its address is on stdout.

python -m tests.unit.http.bounded_server FOLDER DESCRIPTORS
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from tests.unit.http.server_stub import shop_at
from tidegate.cli.processes.logs import begin_log


def main(folder: str, descriptors: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    begin_log(is_kept=True)
    with shop_at(Path(folder)) as at:
        sys.stdout.write(f"{at.host} {at.port}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
