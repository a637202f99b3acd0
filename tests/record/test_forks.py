"""Forked children: they never write to their parent's part of a trace."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest
import torch

import dispatch_inspect as di

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def in_child(work) -> None:  # type: ignore[no-untyped-def]
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_child_records_into_a_part_of_its_own(tmp_path: Path) -> None:
    with di.trace(tmp_path / "t.dtrace") as trace:
        torch.ones(1)
        in_child(lambda: torch.zeros(1))
        torch.ones(1)
    read = di.load(tmp_path / "t.dtrace")
    assert [event.name for event in read.events if event.kind == "op"].count("aten::ones") == 2
    assert len(read.where("aten::zeros")) == 1
    assert {event.process for event in read.where("aten::ones")} == {os.getpid()}
    assert {event.process for event in read.where("aten::zeros")} != {os.getpid()}
    assert len(trace) == len(read)


def test_children_can_be_left_out(tmp_path: Path) -> None:
    with di.trace(tmp_path / "t.dtrace", children=False):
        in_child(lambda: torch.zeros(1))
        torch.ones(1)
    assert di.load(tmp_path / "t.dtrace").names(kind="op") == ["aten::ones"]


def test_a_fork_inside_a_traced_call_does_not_touch_the_open_events_of_the_parent(
    tmp_path: Path,
) -> None:
    class Forks(torch.nn.Module):
        def forward(self, x):  # type: ignore[no-untyped-def]
            pid = os.fork()
            if pid == 0:
                return x * 2
            os.waitpid(pid, 0)
            return x + 1

    parent = os.getpid()
    with di.trace(tmp_path / "t.dtrace"):
        Forks()(torch.ones(1))
        if os.getpid() != parent:
            os._exit(0)
    read = di.load(tmp_path / "t.dtrace")
    module = next(event for event in read.events if event.kind == "module")
    assert module.process == parent
    assert not module.is_open
    assert [child.name for child in module.children] == ["torch.Tensor.add"]
    assert len(read.where("aten::mul.Tensor")) == 1


def test_multiprocessing_children_close_their_parts(tmp_path: Path) -> None:
    with di.trace(tmp_path / "t.dtrace"):
        process = multiprocessing.get_context("fork").Process(target=torch.zeros, args=(1,))
        process.start()
        process.join()
    read = di.load(tmp_path / "t.dtrace")
    assert len(read.where("aten::zeros")) == 1
    assert not any("early" in note for note in read.notes)


def test_a_temporary_trace_is_not_removed_by_a_child() -> None:
    with di.trace() as trace:
        torch.ones(1)
    in_child(lambda: trace.__del__() if hasattr(trace, "__del__") else None)
    assert len(trace.where("aten::ones")) == 1
