"""Regions: backward passes, record_function blocks, optimizer steps."""

from __future__ import annotations

import pytest
import torch
from torch.profiler import record_function

import dispatch_inspect as di


def regions(trace: di.Trace) -> list[str]:
    return [event.name for event in trace.events if event.kind == "region"]


def test_backward_is_a_region_around_its_operators() -> None:
    x = torch.ones(2, requires_grad=True)
    with di.trace() as trace:
        x.exp().sum().backward()
    backward = next(event for event in trace.events if event.kind == "region")
    assert backward.name == "backward"
    assert backward.parent is not None
    assert backward.parent.name == "torch.Tensor.backward"
    assert "aten::mul.Tensor" in [event.name for event in backward.children]


def test_operators_of_backward_name_their_node_and_forward_event() -> None:
    x = torch.ones(2, 3, requires_grad=True)
    w = torch.ones(3, 3, requires_grad=True)
    with di.trace() as trace:
        torch.mm(x, w).tanh().sum().backward()
    of = {
        (event.name, event.node, event.backward_of.name if event.backward_of else None)
        for event in trace.where("in:backward kind:op")
    }
    assert ("aten::tanh_backward", "TanhBackward0", "aten::tanh") in of
    assert ("aten::mm", "MmBackward0", "aten::mm") in of


def test_autograd_grad_is_a_backward_region_too() -> None:
    x = torch.ones(2, requires_grad=True)
    with di.trace() as trace:
        torch.autograd.grad(x.exp().sum(), x)
    assert regions(trace) == ["backward"]


def test_record_function_blocks_nest() -> None:
    with di.trace() as trace:
        with record_function("outer"):
            torch.ones(1)
            with record_function("inner"):
                torch.zeros(1)
        torch.full((1,), 2.0)
    assert regions(trace) == ["outer", "inner"]
    assert [e.name for e in trace.where("in:inner kind:op aten::*")] == ["aten::zeros"]
    assert {e.name for e in trace.where("in:outer aten::* kind:op")} == {
        "aten::ones",
        "aten::zeros",
    }


def test_an_exception_in_a_block_closes_it() -> None:
    with di.trace() as trace:
        with pytest.raises(ValueError, match="stop"), record_function("block"):
            raise ValueError("stop")
        torch.ones(1)
    assert not any(event.is_open for event in trace.events)
    assert len(trace.where("aten::ones in:block")) == 0


def test_an_optimizer_step_is_a_region() -> None:
    weight = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.5)
    with di.trace() as trace:
        weight.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert "Optimizer.step#SGD.step" in regions(trace)
    assert len(trace.where("in:Optimizer.step#SGD.step aten::add_.Tensor")) == 1
    assert weight.tolist() == [0.5, 0.5]


def test_a_failing_backward_closes_its_region() -> None:
    x = torch.ones(2, requires_grad=True)
    y = x.exp().sum()
    y.backward()
    with di.trace() as trace:
        with pytest.raises(RuntimeError, match="second time"):
            y.backward()
        torch.ones(1)
    backward = next(event for event in trace.events if event.kind == "region")
    assert backward.error is not None
    assert backward.error.type == "RuntimeError"
    assert trace.where("aten::ones")[0].depth == 1
