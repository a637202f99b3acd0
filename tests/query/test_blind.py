"""Which calls the modes did not see."""

from __future__ import annotations

import threading

import pytest
import torch

import dispatch_inspect as di
from dispatch_inspect.errors import UsageError
from dispatch_inspect.query.blind import blind_spots


def test_calls_inside_kernels_are_unseen() -> None:
    x, w = torch.ones(2, 3), torch.ones(4, 3, requires_grad=True)
    with di.trace(layers=("ops", "hops")) as trace:
        torch.nn.functional.linear(x, w).sum().backward()
    spots = {(one.name, one.inside): one.calls for one in blind_spots(trace.stored)}
    # aten::t is done by calling aten::transpose.int, inside its kernel
    assert spots["aten::transpose.int", "aten::t"] >= 1
    assert spots["aten::as_strided", "aten::t"] >= 1
    # a composite operator is decomposed above the modes: only its parts reach them
    assert spots["aten::linear", None] == 1
    seen = {event.name for event in trace.where("kind:op")}
    assert not {name for name, inside in spots if inside is None} & seen


def test_calls_of_another_thread_are_unseen() -> None:
    begin, end = threading.Event(), threading.Event()

    def work() -> None:
        begin.wait()
        torch.ones(3).cos()
        end.set()

    thread = threading.Thread(target=work)
    thread.start()
    with di.trace(layers=("ops", "hops")) as trace:
        torch.ones(3).sin()
        begin.set()
        end.wait()
    thread.join()
    spots = {one.name: one for one in blind_spots(trace.stored)}
    assert spots["aten::cos"].inside is None
    assert "aten::sin" not in spots


def test_needs_both_layers() -> None:
    with di.trace(layers=("ops",)) as trace:
        torch.ones(1)
    with pytest.raises(UsageError, match="ops and hops"):
        blind_spots(trace.stored)
