"""Loads the pipeline, flow or cutover that a name on the command line refers to."""

from __future__ import annotations

import sys
import traceback
from functools import reduce
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.errors import (
    BrokenModule,
    SourceLine,
    TidegateError,
    UnknownFlow,
    UnknownPipeline,
)
from tidegate.pipeline import Pipeline

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from tidegate.cutover import Reindex
    from tidegate.flows import Flow

GROUP = "tidegate.pipelines"
"""The entry-point group in which packages register pipelines under short names."""


def find_pipeline(name: str) -> Pipeline:
    """The pipeline registered under `name`, or the one at `package.module:attribute`.

    Modules are also searched in the current folder. Raises `UnknownPipeline`, `BrokenModule`,
    or the `DeclarationError` of the declaration itself.
    """
    registered = {point.name: point.value for point in entry_points(group=GROUP)}
    known = ", ".join(sorted(registered)) or "a registered name"
    found = _load(name, registered.get(name, name), known)
    if not isinstance(found, Pipeline):
        attribute = registered.get(name, name).partition(":")[2]
        reason = f"{attribute!r} is a {type(found).__name__}, not a Pipeline"
        raise UnknownPipeline(name, reason, known)
    return found


def find_flow(name: str) -> Flow:
    """The flow at `package.module:attribute`, checked."""
    from tidegate.flows import Flow

    try:
        found = _load(name, name, "")
    except UnknownPipeline as unknown:
        raise UnknownFlow(name, unknown.reason) from unknown
    if not isinstance(found, Flow):
        raise UnknownFlow(name, f"it is a {type(found).__name__}, not a Flow")
    found.definition  # noqa: B018  raises for an invalid declaration
    return found


def find_reindex(name: str) -> Reindex:
    """The cutover at `package.module:attribute`."""
    from tidegate.cutover import Reindex

    try:
        found = _load(name, name, "")
    except UnknownPipeline as unknown:
        raise UnknownFlow(name, unknown.reason) from unknown
    if not isinstance(found, Reindex):
        raise UnknownFlow(name, f"it is a {type(found).__name__}, not a Reindex")
    return found


def find_flows(name: str) -> list[Flow]:
    """The flow or the flows of the cutover at `module:attribute`, or all flows of a module."""
    try:
        given = [_load(name, name, "")] if ":" in name else vars(_module(name, name, "")).values()
    except UnknownPipeline as unknown:
        raise UnknownFlow(name, unknown.reason) from unknown
    found = {id(flow): flow for value in list(given) for flow in _flows_in(value)}
    if not found and ":" in name:
        return [find_flow(name)]  # raises with the type of the value
    if not found:
        raise UnknownFlow(name, "the module declares no flow")
    for flow in found.values():
        flow.definition  # noqa: B018  raises for an invalid declaration
    return list(found.values())


def _flows_in(value: object) -> Sequence[Flow]:
    from tidegate.flows import Flow

    if isinstance(value, Flow):
        return [value]
    if "tidegate.cutover" not in sys.modules:
        return []  # the declaration of a cutover imports that package
    from tidegate.cutover import Reindex

    return value.flows if isinstance(value, Reindex) else []


def _load(name: str, reference: str, known: str) -> object:
    module, separator, attribute = reference.partition(":")
    if not separator or not module or not attribute:
        raise UnknownPipeline(name, "it is not registered", known)
    return _attribute(name, _module(name, module, known), attribute, known)


def _module(name: str, module: str, known: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return import_module(module)
    except TidegateError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and _leads_to(module, error.name):
            raise UnknownPipeline(name, f"there is no module {error.name!r}", known) from error
        reason = f"{type(error).__name__}: {error}"
        raise BrokenModule(_last_line(error), module, reason) from error


def _leads_to(module: str, missing: str | None) -> bool:
    return missing is not None and f"{module}.".startswith(f"{missing}.")


def _last_line(error: BaseException) -> SourceLine:
    if isinstance(error, SyntaxError) and error.filename:
        return SourceLine(error.filename, error.lineno or 0, (error.text or "").strip())
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return SourceLine(frame.filename, frame.lineno or 0, frame.line or "")


def _attribute(name: str, module: ModuleType, path: str, known: str) -> object:
    try:
        found: object = reduce(getattr, path.split("."), module)
    except AttributeError as error:
        raise UnknownPipeline(name, str(error), known) from error
    return found
