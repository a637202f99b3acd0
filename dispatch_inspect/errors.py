"""The exception tree: every error has a message (what was got) and a hint (what to do)."""

from __future__ import annotations


class DispatchInspectError(Exception):
    """Base of every error this package raises on purpose."""

    #: exit code of the command line when this error ends it
    exit_code = 2

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class UsageError(DispatchInspectError):
    """An argument, option or combination of them that cannot be taken."""


class TraceExistsError(UsageError):
    """The path to record to is taken already."""


class TraceWriteError(DispatchInspectError):
    """The path to record to cannot be written."""


class TraceReadError(DispatchInspectError):
    """The path does not hold a trace that can be read."""

    exit_code = 3


class TraceNotFoundError(TraceReadError):
    """Nothing is at the path."""


class ForeignTraceError(TraceReadError):
    """What is at the path is not a trace of this tool."""


class TraceVersionError(TraceReadError):
    """The trace has a format that this version cannot read."""


class DamagedTraceError(TraceReadError):
    """The trace is damaged in a way that leaves nothing to show."""


class FilterError(UsageError):
    """A filter that cannot be parsed; it knows the column of the fault.

    ``column`` counts characters from 0 in ``text``.
    """

    def __init__(self, message: str, text: str, column: int, hint: str = "") -> None:
        self.text = text
        self.column = column
        super().__init__(f"{message} (column {column + 1})\n  {text}\n  {' ' * column}^", hint)
        self.reason = message


class NotationError(UsageError):
    """Text that is not in the notation; it knows the line (from 1) and column (from 0)."""

    def __init__(self, message: str, text: str, line: int, column: int, hint: str = "") -> None:
        self.text = text
        self.line = line
        self.column = column
        super().__init__(
            f"{message} (line {line}, column {column + 1})\n  {text}\n  {' ' * column}^", hint
        )
        self.reason = message
