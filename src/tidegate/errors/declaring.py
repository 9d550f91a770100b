"""What a user has declared is wrong; every error points at the user's line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tidegate.errors.base import TidegateError


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the user's code; `text` is empty where the file cannot be read."""

    file: str
    line: int
    text: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class DeclarationError(TidegateError):
    """A wrong declaration; `at` is the line of the user's code.

    `message` names the mistake, `advice` what to write instead; both are filled from the fields.
    """

    advice: ClassVar[str] = ""

    at: SourceLine

    @property
    def what(self) -> str:
        """What is wrong, without the line."""
        return self.message.format_map(vars(self))

    @property
    def todo(self) -> str:
        """What to write instead."""
        return self.advice.format_map(vars(self))

    def __str__(self) -> str:
        return f"{self.at}: {self.what}. {self.todo}".rstrip()


class BrokenModule(DeclarationError):
    """The module that declares a pipeline raised an error of its own."""

    message = "module {module!r} cannot be imported: {reason}"
    advice = "Make `python -c 'import {module}'` work first."

    module: str
    reason: str


class InvalidName(DeclarationError):
    """A name that could not be a file name everywhere."""

    message = "{name!r} cannot be the name of a {kind}"
    advice = "Use letters, digits, '_', '-' and '.', starting with a letter or digit."

    kind: str
    name: str


class DuplicateName(DeclarationError):
    """Two things of one kind under one name; `first` is where the other one is."""

    message = "there already is a {kind} {name!r}, declared at {first}"
    advice = "Give one of the two another name (upper and lower case count as the same)."

    kind: str
    name: str
    first: SourceLine


class DuplicateColumn(DeclarationError):
    """Two columns of one operator under one name."""

    message = "the {operator} has two columns {column!r}"
    advice = "Give one of the two another name (upper and lower case count as the same)."

    operator: str
    column: str


class InvalidArgument(DeclarationError):
    """An argument outside of what an operator can do."""

    message = "{operator}: {argument}={value!r} is not possible"
    advice = "Expected is {expected}."

    operator: str
    argument: str
    value: object
    expected: str


class UnknownOption(DeclarationError):
    """A decorator was given an option that it does not have."""

    message = "{decorator} has no option {option!r}"
    advice = "{hint}Options of {decorator} are: {known}."

    decorator: str
    option: str
    known: str
    nearest: str = ""
    """The option of this decorator that is written much like it."""
    elsewhere: str = ""
    """The decorators that have this option."""

    @property
    def todo(self) -> str:
        """The option that may be meant, and all that are possible."""
        hint = f"Write {self.nearest}=…, if that is meant. " if self.nearest else ""
        if self.elsewhere:
            hint = f"It is an option of {self.elsewhere}. "
        return self.advice.format_map({**vars(self), "hint": hint})


class InvalidSchema(DeclarationError):
    """A schema that is not Spark DDL."""

    message = "the schema of source {source!r} cannot be read: {reason}"
    advice = "Write it as Spark DDL, for example 'item_id bigint, price decimal(10,2)'."

    source: str
    reason: str


class InvalidSql(DeclarationError):
    """SQL text that cannot be parsed."""

    message = "this is not a Spark SQL expression: {sql!r} ({reason})"
    advice = "Write one expression, without SELECT and without a closing semicolon."

    sql: str
    reason: str


class ForbiddenSql(DeclarationError):
    """SQL that parses, but whose rows would differ from one replay to the next."""

    message = "{found} is not allowed in {operator}: {sql!r}"
    advice = "{instead}"

    operator: str
    sql: str
    found: str
    instead: str


class UnmergeableAggregate(DeclarationError):
    """An aggregate that cannot be merged from partial results."""

    message = "column {column!r} cannot be merged from partial results: {sql!r}: {reason}"
    advice = "{instead}"

    column: str
    sql: str
    reason: str
    instead: str


class InexactAggregate(DeclarationError):
    """An aggregate whose digits depend on the order of rows, where exactness was asked for."""

    message = "exact=True, but column {column!r} is approximate ({reason}): {sql!r}"
    advice = "{instead}"

    column: str
    sql: str
    reason: str
    instead: str


class JoinWithoutKeys(DeclarationError):
    """A join of everything with everything."""

    message = "this join has no keys"
    advice = "Name the columns both sides share, for example on='store_id'."


class ForeignStream(DeclarationError):
    """Streams of two pipelines in one operator."""

    message = "a stream of pipeline {other!r} is combined with one of pipeline {pipeline!r}"
    advice = "Declare both sides in one pipeline."

    pipeline: str
    other: str


class CyclicPipeline(DeclarationError):
    """A stream that reads its own output."""

    message = "this stream feeds itself: {path}"
    advice = "Break the circle: a stream may only read what was made before it."

    path: str


class UnknownStream(DeclarationError):
    """A reference to a stream that is not declared."""

    message = "nothing arrives here: no stream of pipeline {pipeline!r} is named {name!r}"
    advice = "Call .named({name!r}) on the stream that is meant."

    pipeline: str
    name: str


class PipelineWithoutSink(DeclarationError):
    """A pipeline without a result."""

    message = "pipeline {pipeline!r} has no sink, so nothing would come out of it"
    advice = "End at least one stream with .sink(name)."

    pipeline: str


class UnreadSource(DeclarationError):
    """A source whose rows would be delivered for nothing."""

    message = "source {source!r} of pipeline {pipeline!r} is read by no sink"
    advice = "Remove the source, or lead it to a sink."

    pipeline: str
    source: str


class RefusedBySpark(DeclarationError):
    """Spark's analyser refuses an operator; `spark_condition` is its own name for the reason."""

    message = "Spark refuses this {operator}, {sql!r}: {reason} [{spark_condition}]"
    advice = "{instead}"

    operator: str
    sql: str
    spark_condition: str
    reason: str
    instead: str


class CollatedKey(DeclarationError):
    """A key whose collation treats different values as equal; rows are exchanged by their bytes."""

    message = (
        "key {column!r} of this {operator} is {type}, and rows meet by the bytes of their keys"
    )
    advice = (
        "Cast it in a select before: cast({column} as string), or lower(cast({column} as string))."
    )

    operator: str
    column: str
    type: str


class JoinKeysDiffer(DeclarationError):
    """A join key whose two sides have different types, so that equal values may not meet."""

    message = "join key {column!r} is {left} on the left and {right} on the right"
    advice = "Cast one of them in a select before the join."

    column: str
    left: str
    right: str
