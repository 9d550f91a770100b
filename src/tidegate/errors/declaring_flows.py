"""A flow is declared wrongly; every error points at the user's line."""

from __future__ import annotations

from tidegate.errors.declaring import DeclarationError, SourceLine


class UntypedFunction(DeclarationError):
    """A function of a flow whose annotations are missing or cannot be read."""

    message = "{function} of flow {flow!r} is not fully annotated: {reason}"
    advice = "Annotate every parameter and the result; types are looked up where it is declared."

    flow: str
    function: str
    reason: str


class WrongParameters(DeclarationError):
    """A function of a flow does not take what it will be given."""

    message = "{function} of flow {flow!r} takes {found}, and will be given {given}"
    advice = "A function takes its context first, then one value for each of its dependencies."

    flow: str
    function: str
    found: str
    given: str


class TypesDiffer(DeclarationError):
    """What one function of a flow gives is not what another takes."""

    message = "{function} of flow {flow!r} takes {wanted}, and {source} gives {given}"
    advice = "Make the two annotations the same."

    flow: str
    function: str
    wanted: str
    source: str
    given: str


class UnstorableType(DeclarationError):
    """Values of a flow that are annotated with a type that has no form in JSON."""

    message = "{of} cannot be kept: {type} has no form in JSON ({reason})"
    advice = (
        "Annotate it with None, bool, int, float, str, bytes, Decimal, UUID, a date or time, an"
        " enum, a dataclass, a TypedDict, a msgspec.Struct, or a list, tuple, set or dict of these."
    )

    flow: str
    of: str
    type: str
    reason: str


class NotAList(DeclarationError):
    """A map step is to run for each element of something that has none."""

    message = (
        "map step {step!r} of flow {flow!r} needs a list here, and step {source!r} gives {given}"
    )
    advice = (
        "Annotate {source!r} as list[{item}], make {step!r} a plain step, or depend first on a step"
        " with items: a map step or a generator."
    )

    flow: str
    step: str
    item: str
    source: str
    given: str


class ItemsNotYielded(DeclarationError):
    """A generator that does not give its items one by one."""

    message = "generator {step!r} of flow {flow!r} gives {given}, and not its items one by one"
    advice = (
        "Annotate it as Iterator[Item] and yield each item; a function that gives a list is a"
        " plain step, with a map step behind it."
    )

    flow: str
    step: str
    given: str


class UnknownFlowStep(DeclarationError):
    """A flow has no step of this name."""

    message = "flow {flow!r} has no step {step!r}"
    advice = "Its steps are: {known}."

    flow: str
    step: str
    known: str


class CyclicFlow(DeclarationError):
    """Steps that wait for each other."""

    message = "steps of flow {flow!r} wait for each other: {circle}"
    advice = "Take one of these dependencies away."

    flow: str
    circle: str


class GeneratorWithoutHandler(DeclarationError):
    """A generator has no handler for its items."""

    message = "generator {step!r} of flow {flow!r} has no handler"
    advice = "Declare one with @{step}.handler."

    flow: str
    step: str


class SecondHandler(DeclarationError):
    """Two handlers for the items of one generator; `first` is where the other one is."""

    message = "generator {step!r} of flow {flow!r} already has a handler, declared at {first}"
    advice = (
        "A generator has one handler: do both in it, or do the second with what it gives, in a"
        " map step that depends on {step!r}."
    )

    flow: str
    step: str
    first: SourceLine


class UnknownStateKey(DeclarationError):
    """A step names a key of the state that its flow does not have."""

    message = "step {step!r} names the state {key!r}, and flow {flow!r} has no such key"
    advice = "Declare it with .state({key!r}, …) of this flow. Declared are: {known}."

    flow: str
    step: str
    key: str
    known: str


class ForeignStateKey(DeclarationError):
    """A step names a key of the state of another flow; `first` is where that is declared."""

    message = "step {step!r} of flow {flow!r} names {of}, declared at {first}"
    advice = (
        "Each flow has a state of its own: give the key that .state({key!r}, …) of flow {flow!r}"
        " answers."
    )

    flow: str
    step: str
    key: str
    of: str
    first: SourceLine


class GateNeverOpens(DeclarationError):
    """A step waits for a key of the state that is only written after it."""

    message = "step {step!r} of flow {flow!r} waits for the state {key!r}, in a circle: {circle}"
    advice = (
        "Let a step write {key!r} that does not have to wait for {step!r}, or declare the key with"
        " external=True."
    )

    flow: str
    step: str
    key: str
    circle: str


class StateNeverWritten(DeclarationError):
    """A step waits for a state key that no step writes."""

    message = "step {step!r} of flow {flow!r} reads the state {key!r}, which no step writes"
    advice = "Name it in `writes` of the step that does, or declare it with external=True."

    flow: str
    step: str
    key: str


class FlowInUse(DeclarationError):
    """A flow was used already and cannot be added to."""

    message = "flow {flow!r} is in use, and {name!r} comes too late"
    advice = "Declare everything before the flow is first begun or worked for."

    flow: str
    name: str
