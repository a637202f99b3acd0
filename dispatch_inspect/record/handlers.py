"""The modes whose handlers are the probe's: the usual call never enters Python.

What is unusual comes to the Python handlers of record/calls.py, and so does the first call of each
function and operator, which tells the probe what the next ones need.
"""

from __future__ import annotations

from functools import cache
from types import CodeType, FrameType, ModuleType
from typing import TYPE_CHECKING, Any

from dispatch_inspect.record import notes
from dispatch_inspect.record.calls import FunctionMode, OperatorMode
from dispatch_inspect.record.notes import NOTED_NODES, OTHER_PATH

if TYPE_CHECKING:
    from dispatch_inspect.record.recorder import Recorder
    from dispatch_inspect.record.session import Session
    from dispatch_inspect.record.thread import ThreadRecorder


class Answers:
    """What the probe asks of Python: once for each kind of value, line, node and error."""

    def __init__(self, session: Session, recorder: Recorder) -> None:
        self._session = session
        self._recorder = recorder

    def _thread(self) -> ThreadRecorder | None:
        return self._session.thread()

    def arguments(self, args: Any, kwargs: Any) -> int:
        """The number of the arguments' shape."""
        return self._recorder.values.read_arguments(args, kwargs, [])

    def result(self, result: Any) -> int:
        """The number of a result's shape."""
        return self._recorder.values.read_result(result, [])

    def is_foreign(self, code: CodeType) -> bool:
        """Whether code is PyTorch's or the tracer's own."""
        return self._recorder.sources.is_foreign(code)

    def site(self, frame: FrameType) -> int:
        """The number of the line that a frame is at."""
        return self._recorder.sources.read(frame)

    def python_state(self) -> int:
        """The number of the state of Python code."""
        return self._recorder.states.read_python()

    def node(self, number: int, name: str) -> int:
        """The number of the note at an autograd node's events, or 0."""
        recorder = self._recorder
        recorder.node_names[number] = name
        return recorder.read_note(*OTHER_PATH) if name in NOTED_NODES else 0

    def end(self, row: int, result: Any) -> int:
        """Records an unusual result."""
        thread = self._thread()
        if thread is not None:
            thread.end(row, result, True)
        return 0

    def follow(self, what: Any, row: int, args: Any) -> int:
        """Lets what follows a call look at it."""
        thread = self._thread()
        if thread is not None:
            what(thread, row, args)
        return 0

    def fail(self, mark: int, error: BaseException) -> int:
        """Records that an exception left what was open above ``mark``."""
        thread = self._thread()
        if thread is not None:
            thread.fail(mark, error)
        return 0


@cache
def modes(probe: ModuleType) -> tuple[type[FunctionMode], type[OperatorMode]]:
    """The classes of modes with the probe's handlers."""
    function_handler: Any = probe.FunctionHandler
    operator_handler: Any = probe.OperatorHandler

    class ProbeFunctionMode(function_handler, FunctionMode):  # type: ignore[misc]
        """Records each Python-level torch call."""

        def handle_function(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            """Handles an unusual call, or the first one of its function."""
            self.learn(func)
            return FunctionMode.__torch_function__(self, func, types, args, kwargs)

        def learn(self, func: Any) -> None:
            recorder = self.session.recorder
            number = recorder.names.functions.get(func) or recorder.names.function(func)
            self.know(func, number, func, None, 0)

    class ProbeOperatorMode(operator_handler, OperatorMode):  # type: ignore[misc,no-untyped-call]
        """Records each operator call that reaches the Python key."""

        def handle_operator(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            """Handles an unusual call, or the first one of its operator."""
            self.learn(func)
            return OperatorMode.__torch_dispatch__(self, func, types, args, kwargs)

        def learn(self, func: Any) -> None:
            known = self.session.recorder.names.operator(func)
            # without a kernel for autograd the call must be made as if without the mode
            if not known.without_autograd and known.call is not func:
                when = notes.WHEN.get(known.follow, 0)
                self.know(func, known.number, known.call, known.follow, when)

    return ProbeFunctionMode, ProbeOperatorMode
