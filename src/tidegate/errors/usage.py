"""A name that means nothing here: asking differently is all it takes."""

from __future__ import annotations

from tidegate.errors.base import TidegateError


class UsageError(TidegateError):
    """What was asked for cannot be understood; asking differently is all it takes."""


class UnknownPipeline(UsageError):
    """No pipeline is found under what the user gave as its name."""

    http_status = 404

    message = (
        "there is no pipeline {pipeline!r}: {reason}. Use {known}, or package.module:attribute."
    )

    pipeline: str
    reason: str
    known: str


class NothingToExplain(UsageError):
    """`explain` was called without a pipeline or run."""

    message = "there is nothing to explain: give {missing}"

    missing: str


class UnknownStage(UsageError):
    """A worker is to run a stage that the plan does not have."""

    message = "{pipeline} has no stage {stage!r}; `tidegate explain` draws them: {known}"

    stage: str
    pipeline: str
    known: str


class ClusterShared(UsageError):
    """Several workers on a cluster, of which the first would take everything."""

    message = (
        "each of the {workers} workers is an application of its own on {master}, and the first"
        " would take all of its cores; give --cores, the number each may have"
    )

    master: str
    workers: int


class UnknownDemo(UsageError):
    """No demo is registered under this name."""

    message = "there is no demo {demo!r}; registered are: {known}"

    demo: str
    known: str


class UnknownCrashPoint(UsageError):
    """TIDEGATE_CRASH_AT names an unknown crash point."""

    message = "there is no crash point {wanted!r}; write name or name:nth, the names are: {known}"

    wanted: str
    known: str


class NoDeployment(UsageError):
    """A folder that was named as a deployment is none."""

    message = "{folder} is no deployment: nothing was ever run there. Check --deployment."

    folder: str


class UnusableFolder(UsageError):
    """A folder cannot be used for a deployment or a project."""

    message = "{folder} cannot be used: {reason}"

    folder: str
    reason: str


class NoGeneratedData(UsageError):
    """A pipeline has no data generator, and --data was not given."""

    message = "no data can be generated for {pipeline!r}; give some with --data"

    pipeline: str


class InvalidSetting(UsageError):
    """A setting has a name or a value that is not understood."""

    message = "invalid setting {name}={value}: {reason}"

    name: str
    value: str
    reason: str
