"""Which forward operator a backward one belongs to, by autograd's sequence numbers.

An autograd node takes the next number of its thread when it is made, right before the operator's
call goes on to the modes. So the operator of the node with number s is the first one that saw
s + 1 as the next number.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from dispatch_inspect.store.layout import KIND_CODES

if TYPE_CHECKING:
    from dispatch_inspect.store.reader import StoredTrace

_BACKWARD = re.compile(r"Backward\d*$")
_OPERATORS = (KIND_CODES["op"], KIND_CODES["hop"])


def forward_of(trace: StoredTrace, row: int) -> int | None:
    """The row of the forward operator of a backward event, or None."""
    number = int(trace.column("node_sequence")[row])
    node = trace.table("nodes").get(int(trace.column("node")[row]))
    if not number or node is None:
        return None
    wanted = _letters(_BACKWARD.sub("", node.name))
    for candidate in _first_to_see(trace, number):
        name = trace.table("names").get(int(trace.column("name")[candidate]))
        if name is not None and _letters(name.name.split("::")[-1].split(".")[0]) == wanted:
            return candidate
    return None


def _first_to_see(trace: StoredTrace, number: int) -> list[int]:
    """In each lane, the first operator that saw ``number`` as the next sequence number."""
    sequences, lanes, kinds = (trace.column(name) for name in ("sequence", "lane", "kind"))
    seen = np.flatnonzero((sequences == number) & np.isin(kinds, _OPERATORS))
    found: dict[int, Any] = {}
    for one in seen.tolist():
        found.setdefault(int(lanes[one]), one)
    return list(found.values())


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
