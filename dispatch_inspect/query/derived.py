"""Columns that a trace does not hold but implies; each is worked out once a trace."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from dispatch_inspect.store.layout import KIND_CODES, OPEN
from dispatch_inspect.store.reader import StoredTrace

Array = np.ndarray[Any, Any]
_cache: WeakKeyDictionary[StoredTrace, dict[str, tuple[int, Any]]] = WeakKeyDictionary()


def _once_a_trace(make: Callable[[StoredTrace], Any]) -> Callable[[StoredTrace], Any]:
    @wraps(make)
    def kept(trace: StoredTrace) -> Any:
        found = _cache.setdefault(trace, {})
        if make.__name__ not in found or found[make.__name__][0] != len(trace):
            found[make.__name__] = (len(trace), make(trace))
        return found[make.__name__][1]

    return kept


@_once_a_trace
def durations(trace: StoredTrace) -> Array:
    """Nanoseconds from begin to end; -1 for events without an end."""
    begin, end = trace.column("begin_ns"), trace.column("end_ns")
    known = (trace.column("outcome") != OPEN) & (end >= begin)
    return np.where(known, (end - begin).astype(np.int64), -1)


@_once_a_trace
def self_times(trace: StoredTrace) -> Array:
    """Durations less those of the children; -1 for events without an end."""
    whole = durations(trace)
    parents = trace.column("parent").astype(np.int64)
    inner = np.bincount(parents, np.maximum(whole, 0), len(trace) + 1)[1 : len(trace) + 1]
    return np.where(whole < 0, -1, np.maximum(whole - inner.astype(np.int64), 0))


@_once_a_trace
def files_of(trace: StoredTrace) -> list[str | None]:
    """For each pointer into stacks (0 is none), the file of its innermost frame."""
    files: list[str | None] = [None]
    offsets = trace.table("frames").offsets
    for place, process in enumerate(trace.processes):
        for record in process.tables["stacks"]:
            frame = record and trace.table("frames").get(record.frame + offsets[place] + 1)
            files.append(frame.file if frame is not None else None)
    return files


@_once_a_trace
def keys_of(trace: StoredTrace) -> tuple[Array, list[str]]:
    """For each event, a number for its key (0 is none), and the keys by number - 1."""
    names = trace.column("name").astype(np.int64)
    codes = np.zeros(len(trace), np.int32)
    found: dict[str, int] = {}
    _add_keys_of_hops(trace, codes, found)
    rows = np.flatnonzero(trace.column("kind") == KIND_CODES["op"])
    if not len(rows):
        return codes, list(found)
    # the key depends on the operator, the key sets of its tensors and the state: one event of
    # each combination is enough
    raw = _argument_keys(trace, rows)
    distinct, raw_codes = _numbered(raw)
    states = trace.column("state")[rows].astype(np.int64)
    mixed = (names[rows] * (int(states.max()) + 1) + states) * distinct + raw_codes
    first, group = _groups(mixed)
    numbers = []
    for row in rows[first].tolist():
        key = trace.event(row).key
        numbers.append(found.setdefault(key, len(found) + 1) if key else 0)
    codes[rows] = np.asarray(numbers, np.int32)[group]
    return codes, list(found)


def _add_keys_of_hops(trace: StoredTrace, codes: Array, found: dict[str, int]) -> None:
    rows = np.flatnonzero(trace.column("kind") == KIND_CODES["hop"])
    if not len(rows):
        return
    # one event of each key set, and of each process: bits may mean other keys there
    _, keysets = _numbered(trace.column("keyset")[rows])
    lanes = trace.column("lane")[rows].astype(np.int64)
    first, group = _groups(keysets * (int(lanes.max()) + 1) + lanes)
    numbers = [
        found.setdefault(str(trace.event(row).key), len(found) + 1) for row in rows[first].tolist()
    ]
    codes[rows] = np.asarray(numbers, np.int32)[group]


def _numbered(values: Array) -> tuple[int, Array]:
    """How many distinct values there are, and a number from 0 for each of ``values``."""
    if not len(values) or (values == values[0]).all():
        return 1, np.zeros(len(values), np.int64)
    distinct, numbers = np.unique(values, return_inverse=True)
    return len(distinct), numbers


def _groups(codes: Array) -> tuple[Array, Array]:
    """The first place of each distinct code, and for each code the number of its group."""
    size = int(codes.max()) + 1
    if size > 1 << 24:
        _, first, group = np.unique(codes, return_index=True, return_inverse=True)
        return first, group
    # few possible codes: tables instead of sorting
    places = np.full(size, -1, np.int64)
    places[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    present = np.flatnonzero(places >= 0)
    numbers = np.zeros(size, np.int64)
    numbers[present] = np.arange(len(present))
    return places[present], numbers[codes]


def _argument_keys(trace: StoredTrace, rows: Array) -> Array:
    """The union of the raw key sets of the tensors that go into each of ``rows``."""
    records = trace.table("descriptors")
    raw = np.zeros(len(records) + 1, np.uint64)
    for place in range(len(records)):
        record = records[place]
        raw[place + 1] = 0 if record is None else record.keys & (1 << 64) - 1
    descriptors = trace.operand_column("operand_descriptor")
    begins = trace.column("input_at")[rows].astype(np.int64)
    counts = np.take(tensor_counts(trace), trace.column("arguments")[rows], mode="clip")
    ends = np.minimum(begins + counts, len(descriptors))
    found = np.zeros(len(rows), np.uint64)
    some = np.flatnonzero(ends > begins)
    if len(np.unique(raw[1:])) == 1:
        # one kind of tensor, as in most programs
        found[some] = raw[-1]
    elif len(some):
        # pairs of begin and end: every other result is what lies between two events
        edges = np.stack([begins[some], ends[some]], axis=1).ravel()
        operands = np.append(np.take(raw, descriptors, mode="clip"), np.uint64(0))
        found[some] = np.bitwise_or.reduceat(operands, edges)[::2]
    return found


@_once_a_trace
def aliasing(trace: StoredTrace) -> Array:
    """Whether an output of the event shares storage with one of its arguments."""
    owners = trace.operand_column("operand_event").astype(np.int64)
    storages = trace.operand_column("operand_storage").astype(np.int64)
    found = np.zeros(len(trace), bool)
    if not len(owners):
        return found
    outputs = trace.column("output_at").astype(np.int64)
    has_output = trace.column("result") > 0
    places = np.arange(len(owners))
    is_output = has_output[owners] & (places >= outputs[owners])
    known = storages > 0
    _, numbers = np.unique(storages, return_inverse=True)
    pair = owners * (int(numbers.max()) + 1) + numbers
    shared = np.isin(pair[is_output & known], pair[~is_output & known])
    found[owners[is_output & known][shared]] = True
    return found


@_once_a_trace
def tensor_counts(trace: StoredTrace) -> Array:
    """For each pointer into values, how many tensors belong there."""
    records = trace.table("values")
    counts = np.zeros(len(records) + 1, np.int64)
    for place in range(len(records)):
        record = records[place]
        if record is not None:
            counts[place + 1] = record.tensor_count
    return counts
