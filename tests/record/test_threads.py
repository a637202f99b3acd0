"""Threads: each records into a lane of its own, whoever started it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import torch

import dispatch_inspect as di


def test_a_thread_started_while_recording_is_recorded_under_its_name() -> None:
    with di.trace() as trace:
        thread = threading.Thread(target=lambda: torch.ones(2).mul(3), name="worker")
        thread.start()
        thread.join()
        torch.zeros(2)
    ops = {(event.thread, event.name) for event in trace.events if event.kind == "op"}
    assert ops == {
        ("worker", "aten::ones"),
        ("worker", "aten::mul.Tensor"),
        ("MainThread", "aten::zeros"),
    }


def test_a_thread_that_a_recorded_thread_starts_is_recorded_too() -> None:
    def outer() -> None:
        inner = threading.Thread(target=lambda: torch.ones(1), name="inner")
        inner.start()
        inner.join()

    with di.trace() as trace:
        thread = threading.Thread(target=outer, name="outer")
        thread.start()
        thread.join()
    assert [event.thread for event in trace.where("aten::ones")] == ["inner"]


def test_a_pool_loses_nothing() -> None:
    with di.trace() as trace, ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: torch.full((2,), number).add(1), range(50)))
    assert len(trace.where("aten::full")) == 50
    assert len(trace.where("aten::add.Tensor")) == 50


def test_a_thread_running_before_is_counted_not_lost_in_silence() -> None:
    go, done = threading.Event(), threading.Event()

    def wait() -> None:
        go.wait()
        torch.ones(3)
        done.set()

    thread = threading.Thread(target=wait)
    thread.start()
    with di.trace() as trace:
        go.set()
        done.wait()
    thread.join()
    assert len(trace.where("aten::ones")) == 0
    assert any("running before" in note for note in trace.notes)


def test_threads_can_be_left_out() -> None:
    with di.trace(threads=False) as trace:
        thread = threading.Thread(target=lambda: torch.ones(1))
        thread.start()
        thread.join()
    assert len(trace) == 0


def test_a_subclass_of_thread_with_its_own_run_is_recorded() -> None:
    class Worker(threading.Thread):
        def run(self) -> None:
            torch.ones(1)

    with di.trace() as trace:
        worker = Worker()
        worker.start()
        worker.join()
    assert len(trace.where("aten::ones")) == 1


def test_threading_is_as_before_after_recording() -> None:
    before = threading.Thread.start, threading.Thread.run
    with di.trace():
        pass
    assert (threading.Thread.start, threading.Thread.run) == before


def test_autograd_engine_threads_have_lanes_of_their_own() -> None:
    class Deep(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, level):  # type: ignore[no-untyped-def]
            ctx.level = level
            return x.clone()

        @staticmethod
        def backward(ctx, grad):  # type: ignore[no-untyped-def]
            if ctx.level:
                with torch.enable_grad():
                    inner = grad.detach().requires_grad_()
                    Deep.apply(inner, ctx.level - 1).sum().backward()
            return grad * 2, None

    x = torch.ones(1, requires_grad=True)
    with di.trace(layers=("ops",)) as trace:
        Deep.apply(x, 150).backward()
    clones = trace.where("aten::clone")
    assert len(clones) == 151
    by_thread = [sum(e.thread == name for e in clones) for name in {e.thread for e in clones}]
    assert len(by_thread) > 1
    assert sum(by_thread) == 151


def test_ending_while_other_threads_record_keeps_what_they_recorded() -> None:
    stop = threading.Event()
    counts = []

    def work() -> None:
        count = 0
        while not stop.is_set():
            torch.ones(2)
            count += 1
        counts.append(count)

    with di.trace(layers=("ops",)) as trace:
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        torch.zeros(100_000).sum()
    recorded = len(trace)
    stop.set()
    for thread in threads:
        thread.join()
    assert 0 < recorded <= sum(counts) + 2
    assert all(event.name == "aten::ones" for event in trace.where("aten::ones"))
