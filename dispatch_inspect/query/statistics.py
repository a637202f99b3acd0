"""Calls, times and dtypes by name, key, module, dtype or file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dispatch_inspect.errors import UsageError
from dispatch_inspect.notation import SHORT_DTYPES
from dispatch_inspect.query import derived
from dispatch_inspect.query.evaluate import select
from dispatch_inspect.store.layout import TRACERS
from dispatch_inspect.store.reader import StoredTrace

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One group of events."""

    group: str
    calls: int
    #: without what the calls called
    self_ns: int
    #: with it; a call inside another of the same group counts once
    total_ns: int
    #: part of all self time that was selected, 0 to 1
    share: float
    #: short names of the dtypes of their tensors
    dtypes: tuple[str, ...]
    #: calls that an exception left
    errors: int


COLUMNS = ("group", "calls", "self_ns", "total_ns", "share", "errors")


def statistics(
    trace: StoredTrace,
    by: str = "name",
    where: str | None = None,
    sort: str = "self_ns",
    tracers: bool = False,
) -> list[Row]:
    """The groups of the events that match ``where``, largest ``sort`` first (group: by name).

    Hops that only the tracer's own modes caused count when ``tracers``.
    """
    if by not in GROUPINGS:
        raise UsageError(f"cannot group by {by!r}", f"groups: {' '.join(GROUPINGS)}")
    sort = {"self": "self_ns", "total": "total_ns", "name": "group"}.get(sort, sort)
    if sort not in COLUMNS:
        raise UsageError(f"cannot sort by {sort!r}", f"columns: {' '.join(COLUMNS)}")
    codes, groups = GROUPINGS[by](trace)
    chosen = np.flatnonzero(select(trace, where)) if where else np.arange(len(trace))
    if not tracers:
        chosen = chosen[trace.column("flags")[chosen] & TRACERS == 0]
    if by in ("key", "dtype"):
        # only operators have a key, only calls with tensors a dtype
        chosen = chosen[codes[chosen] > 0]
    codes = codes[chosen]
    size = len(groups)
    calls = np.bincount(codes, minlength=size)
    own = np.maximum(derived.self_times(trace)[chosen], 0)
    selves = np.bincount(codes, own, size)
    totals = np.bincount(codes, _outermost_durations(trace, chosen, codes), size)
    errors = np.bincount(codes, trace.column("error")[chosen] > 0, size)
    dtypes = _dtypes(trace, chosen, codes, size)
    everything = float(selves.sum()) or 1.0
    rows = [
        Row(
            group=groups[code],
            calls=int(calls[code]),
            self_ns=int(selves[code]),
            total_ns=int(totals[code]),
            share=float(selves[code]) / everything,
            dtypes=dtypes[code],
            errors=int(errors[code]),
        )
        for code in np.flatnonzero(calls).tolist()
    ]
    if sort == "group":
        return sorted(rows, key=lambda row: row.group)
    return sorted(rows, key=lambda row: (-getattr(row, sort), row.group))


def _outermost_durations(trace: StoredTrace, rows: Array, codes: Array) -> Array:
    """Durations, with 0 for events inside another event of their group."""
    durations: Array = np.maximum(derived.durations(trace)[rows], 0)
    if not len(rows):
        return durations
    ends = trace.column("subtree_end").astype(np.int64)[rows]
    by_group = np.argsort(codes, kind="stable")
    # groups are laid one after another on the number line, so one running maximum serves all
    shift = codes[by_group].astype(np.int64) * (len(trace) + 1)
    reach = np.maximum.accumulate(ends[by_group] + shift)
    inside = np.zeros(len(rows), bool)
    inside[by_group[1:]] = rows[by_group][1:] + shift[1:] < reach[:-1]
    return np.asarray(np.where(inside, 0, durations))


def _dtypes(trace: StoredTrace, rows: Array, codes: Array, size: int) -> list[tuple[str, ...]]:
    numbers, names = _descriptor_dtypes(trace)
    group_of = np.full(len(trace), -1, np.int64)
    group_of[rows] = codes
    seen = np.zeros((size + 1, len(names) + 1), bool)
    owners = trace.operand_column("operand_event")
    if len(owners) and len(trace):
        kinds = np.take(numbers, trace.operand_column("operand_descriptor"), mode="clip")
        seen[group_of[owners], kinds] = True
    return [
        tuple(
            SHORT_DTYPES.get(names[one - 1], names[one - 1])
            for one in np.flatnonzero(row).tolist()
            if one
        )
        for row in seen[:size]
    ]


def _descriptor_dtypes(trace: StoredTrace) -> tuple[Array, list[str]]:
    """For each pointer into descriptors, a number for its dtype (0 is none), and their names."""
    records = trace.table("descriptors")
    found: dict[str, int] = {}
    numbers = np.zeros(len(records) + 1, np.int64)
    for place in range(len(records)):
        record = records[place]
        if record is not None and record.dtype:
            numbers[place + 1] = found.setdefault(record.dtype, len(found) + 1)
    return numbers, list(found)


def _by_pointer(column: str, table: str, text: Callable[[Any], str], none: str) -> Any:
    def group(trace: StoredTrace) -> tuple[Array, list[str]]:
        records = trace.table(table)
        found: dict[str, int] = {none: 0}
        numbers = np.zeros(len(records) + 1, np.int64)
        for place in range(len(records)):
            record = records[place]
            name = none if record is None else text(record)
            numbers[place + 1] = found.setdefault(name, len(found))
        return np.take(numbers, trace.column(column), mode="clip"), list(found)

    return group


def _by_file(trace: StoredTrace) -> tuple[Array, list[str]]:
    found: dict[str, int] = {"(no Python line)": 0}
    numbers = [
        0 if one is None else found.setdefault(one, len(found)) for one in derived.files_of(trace)
    ]
    return np.take(np.asarray(numbers), trace.column("stack"), mode="clip"), list(found)


def _by_key(trace: StoredTrace) -> tuple[Array, list[str]]:
    codes, names = derived.keys_of(trace)
    return codes, ["(no key)", *names]


def _by_dtype(trace: StoredTrace) -> tuple[Array, list[str]]:
    """The dtype of an event is that of its first output, or else of its first input."""
    numbers, names = _descriptor_dtypes(trace)
    descriptors = trace.operand_column("operand_descriptor")
    owners = trace.operand_column("operand_event")
    codes = np.zeros(len(trace), np.int64)
    events = np.arange(len(trace))
    for column in ("input_at", "output_at"):
        at = trace.column(column).astype(np.int64)
        if not len(descriptors):
            break
        inside = at < len(descriptors)
        at = np.where(inside, at, 0)
        mine = inside & (owners[at] == events)
        first = np.where(mine, np.take(numbers, descriptors[at], mode="clip"), 0)
        codes = np.where(first > 0, first, codes)
    return codes, ["(no tensor)", *(SHORT_DTYPES.get(name, name) for name in names)]


#: what events can be grouped by
GROUPINGS: dict[str, Callable[[StoredTrace], tuple[Array, list[str]]]] = {
    "name": _by_pointer("name", "names", lambda one: one.name, "?"),
    "key": _by_key,
    "module": _by_pointer(
        "module", "names", lambda one: one.name if one.kind == "module" else "?", "(no module)"
    ),
    "dtype": _by_dtype,
    "file": _by_file,
}
