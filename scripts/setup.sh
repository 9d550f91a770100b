#!/usr/bin/env bash
# Gets a machine ready for Tidegate: `python` makes .venv with the pinned dependencies, `java`
# makes sure there is a runtime that Spark accepts. Called by the Makefile, which knows when
# .venv is up to date.
#
# What is missing is installed through apt-get when that needs no password; otherwise the
# script ends with the exact command to type.
set -euo pipefail

readonly OLDEST_JAVA=17
readonly OLDEST_PYTHON_MINOR=11
readonly VENV=.venv
readonly JAVA_PACKAGES=(openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless)

say() { printf 'setup: %s\n' "$*"; }

give_up() {
    printf 'setup: %s\n' "$@" >&2
    exit 1
}

has() { command -v "$1" >/dev/null 2>&1; }

# --- the system's package manager -------------------------------------------------------------

# Prints the words that come before `apt-get` commands, or fails when they may not be run.
root_prefix() {
    if [ "$(id -u)" = 0 ]; then
        echo "env"
    elif has sudo && sudo -n true 2>/dev/null; then
        echo "sudo -n env"
    else
        return 1
    fi
}

# Installs the first of the given packages that the system offers; fails when none could be.
install_first_of() {
    local prefix package
    has apt-get || return 1
    prefix=$(root_prefix) || return 1
    say "refreshing the list of system packages"
    # shellcheck disable=SC2086  # the prefix is several words on purpose
    $prefix DEBIAN_FRONTEND=noninteractive apt-get update -qq >/dev/null \
        || say "could not refresh it; trying with the list as it is"
    for package in "$@"; do
        say "installing $package"
        # shellcheck disable=SC2086
        if $prefix DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends "$package" >/dev/null; then
            return 0
        fi
        say "$package could not be installed"
    done
    return 1
}

# Prints the command a person would type to get the thing: $1 for apt, $2 for dnf, $3 for brew.
advice() {
    if has apt-get; then
        echo "sudo apt-get update && sudo apt-get install -y $1"
    elif has dnf; then
        echo "sudo dnf install -y $2"
    elif has brew; then
        echo "brew install $3"
    else
        echo "your system's package manager (Debian's name for it: $1)"
    fi
}

# --- Java -------------------------------------------------------------------------------------

# Prints the major version of the given java program (8 for "1.8.0_412"), or fails.
java_major() {
    local version
    version=$("$1" -version 2>&1 | sed -n 's/^.* version "\([^"]*\)".*$/\1/p' | head -n 1) || return 1
    version=${version#1.}
    version=${version%%[!0-9]*}
    [ -n "$version" ] && echo "$version"
}

# Prints the java that Spark would start: JAVA_HOME decides, and only without it the PATH.
java_program() {
    if [ -n "${JAVA_HOME:-}" ]; then
        echo "$JAVA_HOME/bin/java"
    else
        command -v java
    fi
}

find_java() {
    local program major
    program=$(java_program) || return 1
    major=$(java_major "$program") || return 1
    [ "$major" -ge "$OLDEST_JAVA" ] && say "Java $major ($program)"
}

refuse_unusable_java_home() {
    [ -z "${JAVA_HOME:-}" ] || give_up \
        "JAVA_HOME is $JAVA_HOME, which holds no Java $OLDEST_JAVA or later." \
        "Spark follows JAVA_HOME: unset it, or point it at Java $OLDEST_JAVA or later."
}

ensure_java() {
    find_java && return
    refuse_unusable_java_home
    say "found no Java $OLDEST_JAVA or later, which Spark needs"
    install_first_of "${JAVA_PACKAGES[@]}" || true
    hash -r
    find_java || give_up \
        "Please install a Java $OLDEST_JAVA+ runtime and run the same command again:" \
        "  $(advice "${JAVA_PACKAGES[0]}" "java-$OLDEST_JAVA-openjdk-headless" "openjdk@$OLDEST_JAVA")"
}

# --- Python -----------------------------------------------------------------------------------

is_recent_python() {
    "$1" -c "import sys; sys.exit(sys.version_info < (3, $OLDEST_PYTHON_MINOR))" 2>/dev/null
}

# Prints the Python to build .venv from; PYTHON=… chooses one.
find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if has "$candidate" && is_recent_python "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    return 1
}

# Debian ships venv and ensurepip apart from Python itself.
can_make_venv() { "$1" -c "import ensurepip, venv" 2>/dev/null; }

ensure_venv_module() {
    local package
    can_make_venv "$1" && return
    package=$("$1" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    say "$1 cannot make virtual environments"
    install_first_of "$package" python3-venv || true
    can_make_venv "$1" || give_up \
        "Please install Python's venv module and run the same command again:" \
        "  $(advice "$package" python3 python3)"
}

make_venv() {
    local python
    python=$(find_python) || give_up \
        "Tidegate needs Python 3.$OLDEST_PYTHON_MINOR or later and found none${PYTHON:+ in PYTHON=$PYTHON}." \
        "Install one, or name it: make setup PYTHON=/path/to/python3"
    ensure_venv_module "$python"
    say "creating $VENV with $("$python" --version)"
    "$python" -m venv --clear "$VENV"
}

ensure_python() {
    if ! is_recent_python "$VENV/bin/python" || ! "$VENV/bin/python" -m pip --version >/dev/null 2>&1; then
        make_venv
    fi
    say "installing the pinned dependencies into $VENV (the first time downloads about 500 MB)"
    # Unlike --constraint, the variables also pin what builds the package; which of them pip
    # follows depends on its age.
    PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
        "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
}

# Sourced by its tests, the script only defines its functions.
if [ "${BASH_SOURCE[0]}" = "$0" ]; then
    case "${1:-}" in
        python) ensure_python ;;
        java) ensure_java ;;
        *) give_up "usage: scripts/setup.sh python|java" ;;
    esac
fi
