"""Module paths follow the actual call."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import dispatch_inspect as di


class Half(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x).exp() + 1


class Whole(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        shared = nn.Linear(3, 3)
        self.left = Half(shared)
        self.right = Half(shared)
        self.tail = nn.ModuleList([nn.Tanh(), nn.Sigmoid()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.right(self.left(x))
        for module in self.tail:
            x = module(x)
        return x


def modules_of(trace: di.Trace, name: str) -> list[str | None]:
    return [event.module for event in trace.where(f"{name} kind:op")]


def test_a_shared_module_is_named_by_the_way_it_was_called() -> None:
    with di.trace() as trace:
        Whole()(torch.ones(2, 3))
    assert modules_of(trace, "aten::addmm") == ["left.inner", "right.inner"]
    assert modules_of(trace, "aten::add.Tensor") == ["left", "right"]
    assert modules_of(trace, "aten::tanh") == ["tail.0"]
    names = [event.name for event in trace.events if event.kind == "module"]
    assert names == [
        "Whole",
        "Whole.left",
        "Whole.left.inner",
        "Whole.right",
        "Whole.right.inner",
        "Whole.tail.0",
        "Whole.tail.1",
    ]


def test_a_module_called_twice_is_two_events() -> None:
    net = nn.Linear(2, 2)
    with di.trace() as trace:
        net(net(torch.ones(1, 2)))
    assert [e.name for e in trace.events if e.kind == "module"] == ["Linear", "Linear"]


def test_a_module_that_calls_itself_is_nested_under_the_same_name() -> None:
    class Again(nn.Module):
        def forward(self, x: torch.Tensor, level: int = 1) -> torch.Tensor:
            return self(x * 2, level - 1) if level else x + 1

    with di.trace() as trace:
        Again()(torch.ones(1))
    outer = trace.events[[e.kind for e in trace.events].index("module")]
    inner = next(child for child in outer.children if child.kind == "module")
    assert (outer.name, inner.name) == ("Again", "Again")


def test_an_exception_closes_the_modules_it_leaves_and_their_names_do_not_stick() -> None:
    class Fails(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise KeyError("inside")

    x = torch.ones(2)
    with di.trace() as trace:
        with pytest.raises(KeyError, match="inside"):
            nn.Sequential(nn.Identity(), Fails())(x)
        x * 2
    failed = [event for event in trace.events if event.kind == "module"]
    assert [e.error.type if e.error else None for e in failed] == ["KeyError", None, "KeyError"]
    assert modules_of(trace, "aten::mul.Tensor") == [None]
    assert all(event.depth == 0 for event in trace.where("torch.Tensor.mul"))


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputation_in_backward_has_the_module_it_recomputes(reentrant: bool) -> None:
    net = Whole()

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return checkpoint(self.net.left, x, use_reentrant=reentrant).sum()

    x = torch.ones(2, 3, requires_grad=True)
    with di.trace() as trace:
        Checkpointed()(x).backward()
    assert modules_of(trace, "aten::addmm") == ["net.left.inner"] * 2
    regions = [event.name for event in trace.events if event.kind == "region"]
    assert regions[:2] == ["backward", "recompute"]
    recomputed = trace.where("aten::addmm in:recompute")
    assert [event.name for event in recomputed] == ["aten::addmm"]


def test_forward_called_directly_is_no_module_call() -> None:
    net = Half(nn.Linear(3, 3))
    with di.trace() as trace:
        net.forward(torch.ones(1, 3))
    assert [e.name for e in trace.events if e.kind == "module"] == ["Linear"]
    assert modules_of(trace, "aten::add.Tensor") == [None]


def test_arguments_have_the_names_of_forward() -> None:
    class Named(nn.Module):
        def forward(self, query: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
            return query * scale

    with di.trace() as trace:
        Named()(torch.ones(2, 3), scale=2.5)
    module = next(event for event in trace.events if event.kind == "module")
    assert list(module.args) == ["query", "scale"]
    assert module.args["query"].shape == (2, 3)
    assert module.args["scale"] == 2.5
    assert module.outputs[0].shape == (2, 3)


def test_modules_are_as_before_after_recording() -> None:
    before = nn.Module.__call__
    with di.trace():
        assert nn.Module.__call__ is not before
    assert nn.Module.__call__ is before
