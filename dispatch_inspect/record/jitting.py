"""torch.jit.trace runs without this tool's modes, which would bake constants into its graph."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch.jit
import torch.jit._trace as jit_trace

from dispatch_inspect.record import active, modestacks

_NOTE = (
    "jit-trace",
    "calls made while torch.jit.trace traced are not recorded: under a dispatch mode its graph "
    "would hold their results as constants",
)


def _unrecorded(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def alone(*args: Any, **kwargs: Any) -> Any:
        threads = [thread for session in active.sessions() if (thread := session.thread())]
        if not threads:
            return function(*args, **kwargs)
        rows = [thread.begin_region("torch.jit.trace", "jit") for thread in threads]
        for thread, row in zip(threads, rows, strict=True):
            thread.note(row, *_NOTE)
        marks = [len(thread.lane.open) for thread in threads]
        try:
            with active.nobody(), modestacks.without_modes():
                result = function(*args, **kwargs)
        except BaseException as error:
            for thread, mark in zip(threads, marks, strict=True):
                thread.fail(mark - 1, error)
            raise
        for thread, row in zip(threads, rows, strict=True):
            thread.end_region(row)
        return result

    return alone


_trace_impl = _unrecorded(jit_trace._trace_impl)
_trace_module = _unrecorded(jit_trace.trace_module)
_get_trace_graph = _unrecorded(jit_trace._get_trace_graph)

#: what stands in for the ways into the tracer. ``torch.jit.trace`` itself stays, since programs
#: have imported it by name: it looks ``_trace_impl`` up when called.
PATCHES = (
    (jit_trace, "_trace_impl", _trace_impl),
    (jit_trace, "trace_module", _trace_module),
    (jit_trace, "_get_trace_graph", _get_trace_graph),
    (torch.jit, "trace_module", _trace_module),
    (torch.jit, "_get_trace_graph", _get_trace_graph),
)
