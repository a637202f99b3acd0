"""What a trace says is what an independent witness sees."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import samples

import dispatch_inspect as di
from dispatch_inspect.store.values import tensors_in


def facts(tensor: torch.Tensor) -> tuple[Any, ...]:
    strides = tensor.stride() if tensor.layout is torch.strided else None
    return str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), strides


class Witness(TorchDispatchMode):
    """Sees calls the plain way and knows nothing of this tool."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        inputs = [facts(x) for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        place = len(self.seen)
        self.seen.append((func.name(), inputs, None))
        result = func(*args, **(kwargs or {}))
        outputs = [facts(x) for x in tree_leaves(result) if isinstance(x, torch.Tensor)]
        self.seen[place] = (func.name(), inputs, outputs)
        return result


def recorded(trace: di.Trace) -> list[Any]:
    found = []
    for event in trace.events:
        if event.kind != "op":
            continue
        inputs = [
            (one.dtype, one.shape, one.strides)
            for value in event.args.values()
            for one in tensors_in(value)
        ]
        outputs = [
            (one.dtype, one.shape, one.strides)
            for value in event.outputs
            for one in tensors_in(value)
        ]
        found.append((event.name, inputs, None if event.error else outputs))
    return found


@pytest.mark.parametrize("chunk", range(4))
def test_operators_tensors_and_order_are_those_a_plain_mode_sees(chunk: int) -> None:
    warnings.simplefilter("ignore")
    compared = 0
    for name in sorted(samples.OPERATORS)[chunk::8]:
        op = samples.OPERATORS[name]
        for dtype in samples.dtypes(op):
            for sample in samples.samples(op, dtype)[:2]:
                with Witness() as witness:
                    samples.outcome(op, sample)
                with di.trace(layers=("ops",)) as trace:
                    samples.outcome(op, sample)
                expected, found = witness.seen, recorded(trace)
                assert [one[0] for one in found] == [one[0] for one in expected], (name, dtype)
                for this, that in zip(found, expected, strict=True):
                    assert this == that, (name, dtype)
                compared += len(found)
    assert compared > 1_000
