"""The order of events: lanes joined in time, and where the subtree of each event ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def joined_order(depths: Sequence[Array], begins: Sequence[Array]) -> Array | None:
    """The rows of all lanes, laid one after another, in global order; None when it is the same.

    A root and what is below it stay together, so the whole is a preorder walk; roots are in the
    order in which they began.
    """
    if sum(len(depth) > 0 for depth in depths) < 2:
        return None
    starts, lengths, times = [], [], []
    base = 0
    for depth, begin in zip(depths, begins, strict=True):
        if len(depth):
            roots = np.flatnonzero(depth == 0)
            if not len(roots) or roots[0] != 0:
                # a damaged lane that begins in the middle of a call
                roots = np.insert(roots, 0, 0)
            starts.append(roots + base)
            lengths.append(np.diff(np.append(roots, len(depth))))
            # within a lane the order is that of the rows, whatever a damaged clock says
            times.append(np.maximum.accumulate(begin[roots]))
        base += len(depth)
    start, length = np.concatenate(starts), np.concatenate(lengths)
    chosen = np.argsort(np.concatenate(times), kind="stable")
    start, length = start[chosen], length[chosen]
    first = np.cumsum(length) - length
    joined: Array = (
        np.arange(base, dtype=np.int64) - np.repeat(first, length) + np.repeat(start, length)
    )
    return joined


def subtree_end(depth: Array, row: int) -> int:
    """The first row after ``row`` that is not below it, by depth alone."""
    level = depth[row]
    begin, step = row + 1, 256
    while begin < len(depth):
        found = np.flatnonzero(depth[begin : begin + step] <= level)
        if len(found):
            return begin + int(found[0])
        begin += step
        step = min(step * 4, 1 << 20)
    return len(depth)


def mended_ends(depth: Array, ends: Array) -> Array:
    """``ends`` with those of open events, and impossible ones, worked out from the depths."""
    rows = np.arange(len(depth), dtype=np.int64)
    wrong = np.flatnonzero((ends <= rows) | (ends > len(depth)))
    if not len(wrong):
        return ends
    mended = ends.astype(np.int64)
    if len(wrong) <= 1_000:
        for row in wrong:
            mended[row] = subtree_end(depth, int(row))
    else:
        mended[wrong] = _all_ends(depth)[wrong]
    return mended


def _all_ends(depth: Array) -> Array:
    """Every subtree's end: one pass with a stack, for traces that lost most of them."""
    ends = np.full(len(depth), len(depth), np.int64)
    above: list[int] = []
    levels = depth.tolist()
    for row, level in enumerate(levels):
        while above and levels[above[-1]] >= level:
            ends[above.pop()] = row
        above.append(row)
    return ends
