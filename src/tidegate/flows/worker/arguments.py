"""The arguments of a step function: results of its dependencies, the flow's input, its signal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from tidegate.errors import FlowRedefined
from tidegate.flows.model.definition import ITEMS
from tidegate.flows.model.steps import StepKind
from tidegate.flows.worker.store_errors import store_access
from tidegate.store.flows import tasks as flow_tasks
from tidegate.store.flows.runs import StepResult, all_item_results, step_result
from tidegate.store.flows.tasks import OWN

if TYPE_CHECKING:
    from tidegate.flows.model.definition import Parameter, StepDefinition
    from tidegate.store import Connection, Database
    from tidegate.store.flows.tasks import Claim

T = TypeVar("T")


class Arguments:
    """Reads arguments from the database; an item comes with its claim."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, part: StepDefinition, claim: Claim) -> list[Any]:
        """All arguments after the context."""
        if claim.position == OWN:
            return [*self._values(part, claim, part.takes), *self._signal(part, claim)]
        assert part.item is not None, "only steps with items have tasks for them"
        item = part.item.decode(claim.payload or "null")
        if part.handler is not None:
            return [item]
        return [item, *self._values(part, claim, part.takes[1:]), *self._signal(part, claim)]

    def _values(
        self, part: StepDefinition, claim: Claim, takes: tuple[Parameter, ...]
    ) -> list[Any]:
        return [self._value(part, claim, taken) for taken in takes]

    def _value(self, part: StepDefinition, claim: Claim, taken: Parameter) -> Any:
        if taken.source is None:
            text, _ = self._read(lambda c: flow_tasks.inputs(c, claim.run, part.step.name))
            return taken.codec.decode(text)
        found = self._found(part, claim, taken.source, taken.is_many)
        if taken.is_many:
            results = self.results(claim.run, taken.source, taken)
            return list(results) if taken.is_list else results
        return None if found.json is None else taken.codec.decode(found.json)

    def check_kind(self, part: StepDefinition, claim: Claim) -> None:
        """Raise `FlowRedefined` if the run was started with another kind of step."""
        kind, name = part.step.kind.value, part.step.name
        found = self._read(lambda c: step_result(c, claim.run, name))
        if found is not None and found.kind != kind:
            raise FlowRedefined(
                claim.run, name, f"there it is of kind {found.kind}, and here {kind}"
            )

    def _found(self, part: StepDefinition, claim: Claim, source: str, is_many: bool) -> StepResult:
        found = self._read(lambda c: step_result(c, claim.run, source))
        if found is None or (StepKind(found.kind) in ITEMS) != is_many:
            reason = "the run has no such step" if found is None else f"it was {found.kind} there"
            takes = f"it takes what {source!r} gives; {reason}"
            raise FlowRedefined(claim.run, part.step.name, takes)
        return found

    def results(self, run: int, source: str, taken: Parameter) -> Iterator[Any]:
        """The results of the items of a step in order, read page by page."""
        with store_access():
            for text in all_item_results(self._database, run, source):
                yield taken.codec.decode(text)

    def _read(self, work: Callable[[Connection], T]) -> T:
        with store_access():
            return self._database.transact(work)

    def _signal(self, part: StepDefinition, claim: Claim) -> list[Any]:
        if part.signal is None:
            return []
        _, text = self._read(lambda c: flow_tasks.inputs(c, claim.run, part.step.name))
        return [part.signal.decode(text or "null")]
