"""The set-up script finds, installs or asks for Java and Python's venv module.

Every program the script may meet is a fake in a folder of its own, and that folder is the whole
PATH: nothing on this machine is asked or changed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "setup.sh"
BASH = shutil.which("bash") or "/bin/bash"
PLAIN_TOOLS = ("sed", "head", "env", "cat", "chmod", "cp")
AN_ORDINARY_USER = "1000"
ROOT = "0"


@dataclass(frozen=True)
class Machine:
    """A machine that consists of the fake programs put on it."""

    bin: Path

    def put(self, program: str, script: str) -> Path:
        return write_program(self.bin / program, script)

    def logs_in_as(self, user_id: str) -> None:
        self.put("id", f"echo {user_id}")

    def offers_packages(self, *, installing: str) -> None:
        self.put("apt-get", f'echo "apt-get $*" >> "{self.apt_log}"\n{installing}')

    @property
    def apt_log(self) -> Path:
        return self.bin / "apt.log"

    def installs(self) -> list[str]:
        lines = self.apt_log.read_text().splitlines() if self.apt_log.exists() else []
        return [line.split()[-1] for line in lines if " install " in line]

    def run(self, function: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [BASH, "-c", f'source "{SCRIPT}"; {function}'],
            env={"PATH": str(self.bin), **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )


def write_program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{BASH}\n{script}\n")
    path.chmod(0o755)
    return path


def java_saying(*lines: str) -> str:
    return "\n".join(f"echo '{line}' >&2" for line in lines)


JAVA_17 = java_saying('openjdk version "17.0.15" 2025-04-15', "OpenJDK Runtime Environment")
JAVA_11 = java_saying('openjdk version "11.0.22" 2024-01-16')


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    fake = Machine(tmp_path / "bin")
    fake.bin.mkdir()
    for tool in PLAIN_TOOLS:
        (fake.bin / tool).symlink_to(os.path.realpath(shutil.which(tool) or tool))
    fake.logs_in_as(AN_ORDINARY_USER)
    return fake


@pytest.mark.parametrize(
    ("lines", "major"),
    [
        (['openjdk version "17.0.15" 2025-04-15'], "17"),
        (['openjdk version "21" 2023-09-19 LTS'], "21"),
        (['openjdk version "26-ea" 2026-03-17'], "26"),
        (['java version "1.8.0_412"'], "8"),
        (["Picked up JAVA_TOOL_OPTIONS: -Xmx1g", 'openjdk version "17.0.9" 2023-10-17'], "17"),
    ],
)
def test_the_major_version_is_read_from_what_java_prints(
    machine: Machine, lines: list[str], major: str
) -> None:
    machine.put("java", java_saying(*lines))

    assert machine.run("java_major java").stdout.strip() == major


def test_java_17_on_the_path_is_found(machine: Machine) -> None:
    machine.put("java", JAVA_17)

    done = machine.run("ensure_java")

    assert done.returncode == 0
    assert done.stdout == f"setup: Java 17 ({machine.bin}/java)\n"


def test_java_home_is_asked_before_the_path(machine: Machine, tmp_path: Path) -> None:
    machine.put("java", JAVA_11)
    write_program(tmp_path / "jdk" / "bin" / "java", JAVA_17)

    done = machine.run("ensure_java", JAVA_HOME=str(tmp_path / "jdk"))

    assert done.returncode == 0
    assert "Java 17" in done.stdout


def test_an_old_java_home_is_refused_even_with_java_17_on_the_path(
    machine: Machine, tmp_path: Path
) -> None:
    machine.put("java", JAVA_17)
    write_program(tmp_path / "jdk" / "bin" / "java", JAVA_11)

    done = machine.run("ensure_java", JAVA_HOME=str(tmp_path / "jdk"))

    assert done.returncode == 1
    assert "unset it, or point it at Java 17" in done.stderr


@pytest.mark.parametrize("java", [JAVA_11, "exit 1", java_saying("no Java runtime present")])
def test_an_unusable_java_without_a_package_manager_says_what_to_install(
    machine: Machine, java: str
) -> None:
    machine.put("java", java)

    done = machine.run("ensure_java")

    assert done.returncode == 1
    assert "install a Java 17+ runtime" in done.stderr
    assert "openjdk-17-jre-headless" in done.stderr


@pytest.mark.parametrize(
    ("package_manager", "command"),
    [
        ("apt-get", "sudo apt-get update && sudo apt-get install -y openjdk-17-jre-headless"),
        ("dnf", "sudo dnf install -y java-17-openjdk-headless"),
        ("brew", "brew install openjdk@17"),
    ],
)
def test_who_may_not_install_is_told_the_exact_command(
    machine: Machine, package_manager: str, command: str
) -> None:
    machine.put(package_manager, "exit 0")
    machine.put("sudo", "exit 1")

    done = machine.run("ensure_java")

    assert done.returncode == 1
    assert command in done.stderr


def test_root_gets_java_installed(machine: Machine) -> None:
    machine.logs_in_as(ROOT)
    machine.put("java-17", JAVA_17)
    machine.offers_packages(installing=f'cp "{machine.bin}/java-17" "{machine.bin}/java"')

    done = machine.run("ensure_java")

    assert done.returncode == 0
    assert machine.installs() == ["openjdk-17-jre-headless"]


def test_a_user_with_passwordless_sudo_gets_java_installed(machine: Machine) -> None:
    machine.put("sudo", '[ "$1" = -n ] && shift; [ "$1" = true ] || exec "$@"')
    machine.put("java-17", JAVA_17)
    machine.offers_packages(installing=f'cp "{machine.bin}/java-17" "{machine.bin}/java"')

    done = machine.run("ensure_java")

    assert done.returncode == 0
    assert machine.installs() == ["openjdk-17-jre-headless"]


def test_a_later_java_is_tried_when_the_system_does_not_offer_17(machine: Machine) -> None:
    machine.logs_in_as(ROOT)
    machine.offers_packages(installing='case "$*" in *install*) exit 100 ;; esac')

    done = machine.run("ensure_java")

    assert done.returncode == 1
    assert machine.installs() == [
        "openjdk-17-jre-headless",
        "openjdk-21-jre-headless",
        "default-jre-headless",
    ]


def test_a_python_without_venv_is_told_which_package_is_missing(machine: Machine) -> None:
    machine.put(
        "python3", 'case "$*" in *ensurepip*) exit 1 ;; *print*) echo python3.12-venv ;; esac'
    )
    machine.put("apt-get", "exit 0")

    done = machine.run("ensure_venv_module python3")

    assert done.returncode == 1
    assert "sudo apt-get install -y python3.12-venv" in done.stderr


def test_a_python_that_is_too_old_is_passed_over(machine: Machine) -> None:
    machine.put("python3", "exit 1")
    machine.put("python3.12", "exit 0")

    assert machine.run("find_python").stdout == "python3.12\n"


def test_a_machine_without_python_is_told_the_oldest_version(machine: Machine) -> None:
    done = machine.run("make_venv")

    assert done.returncode == 1
    assert "needs Python 3.11 or later" in done.stderr
