"""Every output that is not interactive: trees and statistics as text, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dispatch_inspect.query import folding
from dispatch_inspect.query.blind import Unseen
from dispatch_inspect.query.evaluate import select
from dispatch_inspect.query.notated import pattern_of
from dispatch_inspect.query.statistics import Row
from dispatch_inspect.store.event import Event
from dispatch_inspect.store.reader import StoredTrace
from dispatch_inspect.store.tensor import TensorInfo
from dispatch_inspect.store.values import Opaque


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a tree: the call in the notation, and a comment the notation leaves out."""

    depth: int
    call: str
    comment: str = ""
    #: shown only because something below it matches
    is_context: bool = False
    is_error: bool = False

    def __str__(self) -> str:
        text = "  " * self.depth + self.call
        return f"{text}  # {self.comment}" if self.comment else text


def tree(
    trace: StoredTrace,
    where: str | None = None,
    depth: int | None = None,
    fold: bool = True,
    tracers: bool = False,
) -> Iterator[Line]:
    """The calls of a trace, one line each, made as they are asked for.

    ``where`` keeps events that match and, as context, those around them; ``depth`` is how many
    levels are shown; ``fold`` shows runs of equal siblings once, with ``×N``; ``tracers`` shows
    the hops, too, that are there only because the tracer's own modes are on.
    """
    if not len(trace):
        yield Line(0, "...", "nothing was recorded: was the program's work done inside trace()?")
        return
    matching = select(trace, where) if where else None
    if matching is not None and not matching.any():
        yield Line(0, "...", nearest(trace, where or ""))
        return
    printed = _Tree(trace, matching, depth, fold, tracers)
    yield from printed.lines(0, len(trace), 0)
    for rule, text in printed.rules.items():
        yield Line(0, f"# note {rule}: {text}")


class _Tree:
    def __init__(
        self, trace: StoredTrace, matching: Any, depth: int | None, fold: bool, tracers: bool
    ) -> None:
        self._trace = trace
        self._tracers = tracers
        self._matching = matching
        self._depth = depth
        self._fold = fold and matching is None
        #: rules of the notes shown so far, and what they mean
        self.rules: dict[str, str] = {}
        self._counts = None if matching is None else np.concatenate([[0], np.cumsum(matching)])

    def lines(self, begin: int, end: int, level: int) -> Iterator[Line]:
        """The lines of the events at one level and below."""
        for row, count in self._siblings(begin, end):
            after = self._trace.subtree_end(row)
            if self._counts is not None and self._counts[after] == self._counts[row]:
                continue
            yield self._line(row, count, level)
            if self._depth is None or level + 1 < self._depth:
                yield from self.lines(row + 1, after, level + 1)

    def _siblings(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        rows = folding.siblings(self._trace, begin, end, self._tracers)
        return folding.runs(self._trace, rows) if self._fold else ((row, 1) for row in rows)

    def _line(self, row: int, count: int, level: int) -> Line:
        event = self._trace.event(row)
        parts = []
        if count > 1:
            parts.append(f"×{count}")
        if event.key is not None and event.kind == "op":
            parts.append(event.key)
        if event.entered_by == "redispatch":
            parts.append("redispatch")
        duration = event.duration_ns
        if duration is not None:
            parts.append(format_ns(duration))
        error = event.error
        if error is not None and error.message:
            parts.append(error.message.splitlines()[0][:120])
        note = event.note
        if note is not None:
            parts.append(f"note {note.rule}")
            self.rules[note.rule] = note.text
        is_context = self._matching is not None and not self._matching[row]
        if is_context:
            parts.append("context")
        return Line(level, str(pattern_of(event)), ", ".join(parts), is_context, error is not None)


def nearest(trace: StoredTrace, where: str) -> str:
    """What to say when nothing matches: the most frequent names there are."""
    codes = trace.column("name")
    numbers, counts = np.unique(codes, return_counts=True)
    frequent = numbers[np.argsort(-counts, kind="stable")][:3].tolist()
    names = [record.name for record in map(trace.table("names").get, frequent) if record]
    return f"no event matches {where!r}; most frequent here: {', '.join(names)}"


def format_ns(nanoseconds: float) -> str:
    """A duration with three digits and its unit: "41.2 µs"."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds:.0f} ns"


def tree_json(
    trace: StoredTrace, where: str | None = None, depth: int | None = None
) -> Iterator[str]:
    """One JSON object an event, in order; ``parent`` is the id of the event it was called from."""
    rows = np.flatnonzero(select(trace, where)) if where else range(len(trace))
    for row in rows:
        event = trace.event(int(row))
        if depth is None or event.depth < depth:
            yield json.dumps(event_json(event), ensure_ascii=False)


def event_json(event: Event) -> dict[str, Any]:
    """An event as JSON values; times in nanoseconds."""
    parent = event.parent
    forward = event.backward_of
    return {
        "id": event.id,
        "parent": None if parent is None else parent.id,
        "depth": event.depth,
        "kind": event.kind,
        "name": event.name,
        "module": event.module,
        "key": event.key,
        "keyset": list(event.keyset),
        "kernel": event.kernel,
        "entered_by": event.entered_by,
        "is_tracers": event.is_tracers,
        "args": {name: _json(value) for name, value in event.args.items()},
        "outputs": [_json(value) for value in event.outputs],
        "aliases": [list(pair) for pair in event.aliases],
        "mode": asdict(event.mode),
        "thread": event.thread,
        "process": event.process,
        "begin_ns": event.begin_ns,
        "duration_ns": event.duration_ns,
        "self_ns": event.self_ns,
        "error": None if event.error is None else event.error.model_dump(),
        "is_open": event.is_open,
        "node": event.node,
        "backward_of": None if forward is None else forward.id,
        "note": None if event.note is None else event.note.model_dump(),
        "stack": [
            {"file": frame.file, "line": frame.line, "function": frame.function}
            for frame in event.stack
        ],
    }


def _json(value: Any) -> Any:
    if isinstance(value, TensorInfo):
        return {"tensor": asdict(value)}
    if isinstance(value, dict):
        return {str(name): _json(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(one) for one in value]
    if isinstance(value, frozenset):
        return sorted(map(str, value))
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        return str(value)
    if isinstance(value, (complex, slice, Opaque)):
        return str(value)
    return value


def stats(rows: Sequence[Row], by: str) -> Iterator[str]:
    """Statistics as an aligned table."""
    table = [(by, "calls", "self", "total", "share", "errors", "dtypes")]
    table += [
        (
            row.group,
            f"{row.calls:,}",
            format_ns(row.self_ns),
            format_ns(row.total_ns),
            f"{100 * row.share:.1f} %",
            f"{row.errors:,}" if row.errors else "",
            " ".join(row.dtypes),
        )
        for row in rows
    ]
    widths = [max(len(line[place]) for line in table) for place in range(len(table[0]))]
    for line in table:
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:-1], widths[1:-1], strict=True)]
        yield "  ".join([*cells, line[-1]]).rstrip()


def blind(rows: Sequence[Unseen]) -> Iterator[str]:
    """Calls that no mode saw, as an aligned table."""
    table = [("name", "calls", "inside")]
    table += [(row.name, f"{row.calls:,}", row.inside or "(no operator)") for row in rows]
    widths = [max(len(line[place]) for line in table) for place in range(2)]
    for name, calls, inside in table:
        yield f"{name.ljust(widths[0])}  {calls.rjust(widths[1])}  {inside}"


def stats_json(rows: Sequence[Row | Unseen]) -> str:
    """Statistics as a JSON list; times in nanoseconds."""
    return json.dumps([asdict(row) for row in rows], ensure_ascii=False, indent=1)


def stats_csv(rows: Sequence[Row]) -> str:
    """Statistics as CSV with a header; times in nanoseconds."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("group", "calls", "self_ns", "total_ns", "share", "errors", "dtypes"))
    for row in rows:
        writer.writerow(
            (
                row.group,
                row.calls,
                row.self_ns,
                row.total_ns,
                f"{row.share:.6f}",
                row.errors,
                " ".join(row.dtypes),
            )
        )
    return text.getvalue()
