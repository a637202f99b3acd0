"""Calls of the dispatcher that the modes did not see: made inside kernels, or without a mode.

Known only of a trace with both layers, ops and hops: a hop that was entered by a call belongs to an
op event, or no dispatch mode saw that call.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from dispatch_inspect.errors import UsageError
from dispatch_inspect.store.layout import CALLED, KIND_CODES
from dispatch_inspect.store.reader import StoredTrace

Array = np.ndarray[Any, Any]
_OP, _HOP = KIND_CODES["op"], KIND_CODES["hop"]


@dataclass(frozen=True, slots=True)
class Unseen:
    """Calls of one operator at one kind of place."""

    name: str
    calls: int
    #: the operator whose kernel made them; None outside of any that the modes saw
    inside: str | None


def blind_spots(trace: StoredTrace) -> list[Unseen]:
    """The calls that no mode saw, most frequent first.

    Raises UsageError when the trace was not recorded with ops and hops.
    """
    layers = trace.process.layers
    if not {"ops", "hops"} <= set(layers):
        raise UsageError(
            f"blind spots show in a trace of the layers ops and hops; this one has: "
            f"{', '.join(layers)}",
            "record it with --layers ops,hops",
        )
    rows = np.flatnonzero(unseen(trace))
    around = _operator_around(trace)[rows]
    names = trace.column("name")
    pairs = zip(names[rows].tolist(), np.where(around >= 0, names[around], 0).tolist(), strict=True)
    texts = {0: None, **{code: _text(trace, code) for code in np.unique(names).tolist()}}
    counts = Counter((texts[name], texts[inside]) for name, inside in pairs)
    found = [Unseen(name or "?", count, inside) for (name, inside), count in counts.items()]
    return sorted(found, key=lambda one: (-one.calls, one.name, one.inside or ""))


def unseen(trace: StoredTrace) -> Array:
    """Whether an event is a hop entered by a call for which there is no op event."""
    kinds, names = trace.column("kind"), trace.column("name").astype(np.int64)
    texts = _same_names(trace)[names]
    parents = trace.column("parent").astype(np.int64) - 1
    called = (kinds == _HOP) & (trace.column("flags") & CALLED > 0)
    above = np.where(parents >= 0, parents, 0)
    # below an op event the call goes on: its handler called the operator again
    goes_on = (parents >= 0) & (kinds[above] == _OP) & (texts[above] == texts)
    found: Array = called & ~goes_on
    # from each op event up the redispatches to the call
    ops = np.flatnonzero((kinds == _OP) & (parents >= 0))
    here = parents[ops]
    while len(here):
        same = (kinds[here] == _HOP) & (texts[here] == texts[ops])
        ops, here = ops[same], here[same]
        found[here[called[here]]] = False
        up = ~called[here] & (parents[here] >= 0)
        ops, here = ops[up], parents[here[up]]
    return found


def _operator_around(trace: StoredTrace) -> Array:
    """For each event the row of the nearest op event around it, or -1."""
    kinds = trace.column("kind")
    around = trace.column("parent").astype(np.int64) - 1
    while True:
        climbing = (around >= 0) & (kinds[np.maximum(around, 0)] != _OP)
        if not climbing.any():
            return around
        around[climbing] = trace.column("parent")[around[climbing]].astype(np.int64) - 1


def _same_names(trace: StoredTrace) -> Array:
    """For each pointer into names a number that is the same for equal names."""
    table = trace.table("names")
    numbers: dict[str, int] = {}
    found = np.zeros(len(table) + 1, np.int64)
    for place in range(len(table)):
        found[place + 1] = numbers.setdefault(_text(trace, place + 1), len(numbers) + 1)
    return found


def _text(trace: StoredTrace, pointer: int) -> str:
    record = trace.table("names").get(pointer)
    return "?" if record is None else str(record.name)
