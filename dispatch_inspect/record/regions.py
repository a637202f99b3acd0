"""Named stretches of the program: backward, recomputation, record_function, optimizers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.autograd
import torch.utils.checkpoint as checkpoint

from dispatch_inspect.record import active

if TYPE_CHECKING:
    from dispatch_inspect.record.session import Session
    from dispatch_inspect.record.thread import ThreadRecorder


def in_region(name: str, category: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls ``call`` inside a region of every recording of this thread."""
    return _in_region(active.sessions(), name, category, lambda: call(*args, **kwargs))


def _in_region(
    sessions: Sequence[Session], name: str, category: str, call: Callable[[], Any]
) -> Any:
    if not sessions:
        return call()
    thread = sessions[0].thread()
    if thread is None:
        return _in_region(sessions[1:], name, category, call)
    mark = len(thread.lane.open)
    try:
        row = thread.begin_region(name, category)
        result = _in_region(sessions[1:], name, category, call)
    except checkpoint._StopRecomputationError:
        # recomputation has all it needs: this is how it returns
        thread.end_region(row)
        raise
    except BaseException as error:
        thread.fail(mark, error)
        raise
    thread.end_region(row)
    return result


_run_backward = torch.autograd.graph._engine_run_backward
_recompute = checkpoint._run_fn_with_dynamo_disabled
_reentrant_backward = checkpoint.CheckpointFunction.backward


def _backward(*args: Any, **kwargs: Any) -> Any:
    return in_region("backward", "backward", _run_backward, *args, **kwargs)


def _recomputation(*args: Any, **kwargs: Any) -> Any:
    return in_region("recompute", "recompute", _recompute, *args, **kwargs)


def _reentrant_recomputation(ctx: Any, *args: Any) -> Any:
    return in_region("recompute", "recompute", _reentrant_backward, ctx, *args)


#: what stands in for the functions that begin a region
PATCHES = (
    (torch.autograd, "_engine_run_backward", _backward),
    (torch.autograd.graph, "_engine_run_backward", _backward),
    (checkpoint, "_run_fn_with_dynamo_disabled", _recomputation),
    (checkpoint.CheckpointFunction, "backward", staticmethod(_reentrant_recomputation)),
)


def _category(name: str) -> str:
    return "optimizer" if name.startswith("Optimizer.") else "record_function"


def record_function_entered(thread: ThreadRecorder, row: int, args: Any) -> None:
    """Opens the region of a ``record_function`` block or an optimizer's step."""
    del row
    name = args[0] if args and isinstance(args[0], str) else "record_function"
    thread.blocks.append(thread.begin_region(name, _category(name)))


def record_function_left(thread: ThreadRecorder, row: int, args: Any) -> None:
    """Closes the innermost such region."""
    del row, args
    if thread.blocks:
        thread.end_region(thread.blocks.pop())


#: operators after which a region opens or closes
MARKERS = {
    "profiler::_record_function_enter": record_function_entered,
    "profiler::_record_function_enter_new": record_function_entered,
    "profiler::_record_function_exit": record_function_left,
    "profiler::_record_function_exit._RecordFunction": record_function_left,
}
