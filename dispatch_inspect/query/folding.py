"""Runs of equal sibling subtrees, so that forty-eight equal layers can be shown as one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dispatch_inspect.query import derived
from dispatch_inspect.store.layout import TRACERS
from dispatch_inspect.store.reader import StoredTrace

Array = np.ndarray[Any, Any]

#: columns in which two events must agree to be shown as one
_ALIKE = ("kind", "name", "arguments", "result", "outcome", "error", "note", "keyset", "flags")


def siblings(trace: StoredTrace, begin: int, end: int, tracers: bool = False) -> Iterator[int]:
    """The rows of one level from ``begin`` to ``end``.

    In the place of a hop that only the tracer's own modes caused stands what is below it, unless
    ``tracers``.
    """
    flags = trace.column("flags")
    row = begin
    while row < end:
        after = max(row + 1, trace.subtree_end(row))
        if not tracers and flags[row] & TRACERS:
            yield from siblings(trace, row + 1, after)
        else:
            yield row
        row = after


def runs(trace: StoredTrace, rows: Iterator[int]) -> Iterator[tuple[int, int]]:
    """Rows of one level as (first row, how many equal ones)."""
    first, count = -1, 0
    for row in rows:
        if count and alike(trace, first, row):
            count += 1
            continue
        if count:
            yield first, count
        first, count = row, 1
    if count:
        yield first, count


def alike(trace: StoredTrace, this: int, that: int) -> bool:
    """Whether two subtrees hold the same calls with the same kinds of tensors."""
    length = trace.subtree_end(this) - this
    if trace.subtree_end(that) - that != length:
        return False
    here, there = slice(this, this + length), slice(that, that + length)
    for name in _ALIKE:
        column = trace.column(name)
        if not np.array_equal(column[here], column[there]):
            return False
    depth = trace.column("depth").astype(np.int64)[this : that + length]
    if not np.array_equal(depth[:length], depth[that - this :]):
        return False
    descriptors = trace.operand_column("operand_descriptor")
    return all(
        np.array_equal(
            descriptors[_operands(trace, here, *columns)],
            descriptors[_operands(trace, there, *columns)],
        )
        for columns in (("input_at", "arguments"), ("output_at", "result"))
    )


def _operands(trace: StoredTrace, rows: slice, place: str, values: str) -> Array:
    """The operand rows of consecutive events."""
    counts = np.take(derived.tensor_counts(trace), trace.column(values)[rows], mode="clip")
    begins = trace.column(place)[rows].astype(np.int64)
    before = np.cumsum(counts) - counts
    found = np.repeat(begins - before, counts) + np.arange(int(counts.sum()))
    limit = len(trace.operand_column("operand_descriptor"))
    return found[found < limit]
