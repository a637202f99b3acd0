"""How much slower a program ran for being recorded, measured in the same process afterwards."""

from __future__ import annotations

from time import perf_counter

import torch

from dispatch_inspect.record.tracing import trace

_CALLS = 500
#: fewer events say nothing worth telling
_FEWEST = 100


def seconds_an_event(layers: tuple[str, ...], stacks: bool) -> float:
    """What recording adds to a call of a small operator, divided by the events it makes."""
    a, b = torch.ones(4), torch.ones(4)

    def call() -> float:
        best = float("inf")
        for _ in range(3):
            begin = perf_counter()
            for _ in range(_CALLS):
                torch.add(a, b)
            best = min(best, perf_counter() - begin)
        return best

    plain = call()
    with trace(layers=layers, stacks=stacks, threads=False, children=False) as recording:
        recorded = call()
    events = len(recording) / 3
    return max(0.0, recorded - plain) / events if events else 0.0


def slow_down(events: int, wall: float, layers: tuple[str, ...], stacks: bool) -> str:
    """The slow-down as a phrase, from the wall time in seconds; "" when it cannot be told."""
    if events < _FEWEST:
        return ""
    cost = seconds_an_event(layers, stacks)
    if not cost:
        return ""
    spent = events * cost
    each = f"{cost * 1e6:.1f} µs an event"
    if spent >= 0.9 * wall:
        return f"more than 10 times slower for it ({each})"
    return f"about {wall / (wall - spent):.2f} times slower for it ({each})"
