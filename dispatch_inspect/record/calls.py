"""The two modes that see calls: Python-level functions, and ATen operators at the Python key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch._C import (
    _len_torch_dispatch_stack,
    _len_torch_function_stack,
    _pop_torch_dispatch_stack,
    _push_on_torch_dispatch_stack,
)
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from dispatch_inspect.record.tensors import PLAIN_TYPES

if TYPE_CHECKING:
    from dispatch_inspect.record.session import Session
    from dispatch_inspect.record.thread import ThreadRecorder


class FunctionMode(TorchFunctionMode):
    """Records each Python-level torch call."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        session = self.session
        # what session.thread() does, without the call
        thread = None if session.paused else getattr(session.local, "thread", None)
        if thread is None:
            thread = session.thread()
        if thread is None:
            return func(*args, **kwargs) if kwargs else func(*args)
        mark = len(thread.open)
        try:
            quiet = not _len_torch_function_stack()
            row = thread.begin_function(func, args, kwargs, quiet)
            result = func(*args, **kwargs) if kwargs else func(*args)
            thread.end(row, result, quiet)
        except BaseException as error:
            # the traceback must not keep the arguments alive
            args = kwargs = None
            try:
                thread.fail(mark, error)
            finally:
                # an interrupt may come even here, and what is open decides what is inside what
                del thread.open[mark:]
            raise
        return result


class OperatorMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records each operator call that reaches the Python key."""

    # torch.compile must neither fall back to eager nor stop at higher-order operators
    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # the usual wrapper would import torch._dynamo at the first call and cost more than the
        # handler; compiling.hide_frames() keeps the compiler away from these frames instead
        return False

    def __init__(self, session: Session) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.session = session

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        session = self.session
        # what session.thread() does, without the call
        thread = None if session.paused else getattr(session.local, "thread", None)
        if thread is None:
            thread = session.thread()
        if thread is None:
            return func(*args, **kwargs) if kwargs else func(*args)
        if types and thread.aside is func:
            thread.aside = None
            return NotImplemented
        mark = len(thread.open)
        try:
            known = thread.operators.get(id(func)) or thread.learn_operator(func)
            quiet = not _len_torch_function_stack()
            row = thread.begin_operator(known.number, args, kwargs, quiet)
            if types and not PLAIN_TYPES.issuperset(types) and not _len_torch_dispatch_stack():
                result = self._call_subclass(thread, func, args, kwargs or {})
            elif (
                known.without_autograd or thread.state[3] or thread.tensors.saw_complex
            ) and not _len_torch_dispatch_stack():
                result = thread.call_restored(known, args, kwargs or {})
            elif kwargs:
                result = known.call(*args, **kwargs)
            else:
                result = known.call(*args)
            thread.end(row, result, quiet)
        except BaseException as error:
            args = kwargs = None
            try:
                thread.fail(mark, error)
            finally:
                # an interrupt may come even here, and what is open decides what is inside what
                del thread.open[mark:]
            raise
        if known.follow is not None:
            known.follow(thread, row, args)
        return result

    def _call_subclass(self, thread: ThreadRecorder, func: Any, args: Any, kwargs: Any) -> Any:
        """Calls an operator on a tensor subclass so that the calls inside its handler are seen.

        The mode goes back on the stack, steps aside for this very call, and is there again when
        the subclass's ``__torch_dispatch__`` runs.
        """
        thread.aside = func
        _push_on_torch_dispatch_stack(self)
        try:
            return func(*args, **kwargs)
        finally:
            _pop_torch_dispatch_stack(None)
            thread.aside = None
