"""What one thread records: the hot path, from a call to the numbers in its lane.

A function call and the first operator it dispatches usually have the very same arguments, and no
Python runs between the two, so the second does not read them again; likewise for what both return.
"""

from __future__ import annotations

import operator
import sys
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from torch._C import (  # type: ignore[attr-defined]
    DisableTorchFunction,
    _current_autograd_node,
    _len_torch_function_stack,
    _RestorePythonTLSSnapshot,
)
from torch._C._autograd import _get_sequence_nr

from dispatch_inspect.record import restoring
from dispatch_inspect.record.tensors import PLAIN_TYPES
from dispatch_inspect.store.lane_writer import NO_ROW, LaneWriter
from dispatch_inspect.store.layout import KIND_CODES

if TYPE_CHECKING:
    from dispatch_inspect.record.modules import Reached
    from dispatch_inspect.record.recorder import Recorder

_MODULE = KIND_CODES["module"]
_REGION = KIND_CODES["region"]
_FUNCTION = KIND_CODES["function"]
_OP = KIND_CODES["op"]


class ThreadRecorder:
    """Records the calls of one thread. Nothing here raises into the traced program."""

    __slots__ = (
        "_names",
        "_result",
        "_result_rows",
        "_shared",
        "_snapshot",
        "_sources",
        "_states",
        "_tensors",
        "_values",
        "aside",
        "blocks",
        "excluded",
        "included",
        "lane",
        "modules",
        "recorder",
    )

    def __init__(self, recorder: Recorder, lane: LaneWriter) -> None:
        self.recorder = recorder
        self.lane = lane
        self._names = recorder.names
        self._values = recorder.values
        self._tensors = recorder.tensors
        self._sources = recorder.sources
        self._states = recorder.states
        self._snapshot = _RestorePythonTLSSnapshot()
        #: the function call that has just begun: (args, kwargs, number, operands, stack)
        self._shared: Any = None
        #: what the last call returned: (weak reference, number, operands, requires_grad, is_view)
        self._result: Any = None
        self._result_rows = 0
        #: the operator for which the mode steps aside, see calls.OperatorMode
        self.aside: Any = None
        #: modules whose forward is running, outermost first, see modules
        self.modules: list[Reached] = []
        #: open record_function blocks, see regions
        self.blocks: list[int] = []
        #: raw key sets with which the dispatcher was entered for the last operator
        self.included = 0
        self.excluded = 0

    def begin_function(self, func: Any, args: Any, kwargs: Any) -> int:
        """Records that a Python-level torch call begins; called by the mode's handler."""
        recorder = self.recorder
        try:
            names = self._names
            name = names.functions.get(func) or names.function(func)
            lane = self.lane
            if recorder.filters is not None and not recorder.filters.wants(self, name):
                return NO_ROW
            operands: list[int] = []
            if _len_torch_function_stack():
                with DisableTorchFunction():
                    arguments = self._values.read_arguments(args, kwargs, operands)
            else:
                arguments = self._values.read_arguments(args, kwargs, operands)
            stack = self._sources.read(sys._getframe(1).f_back)
            state = self._states.read_python()
            now = perf_counter_ns()
            row = lane.begin(
                _FUNCTION, now, name, arguments, operands, state, stack, _get_sequence_nr()
            )
            self._shared = (args, kwargs, arguments, operands, stack)
            return row
        except Exception as fault:
            return recorder.fault(fault)

    def begin_operator(self, func: Any, args: Any, kwargs: Any) -> int:
        """Records that an operator call begins at the Python key; called by the mode's handler."""
        recorder = self.recorder
        try:
            state, self.included, self.excluded = self._read_state()
            shared = self._shared
            self._shared = None
            names = self._names
            name = names.operators.get(func) or names.operator(func)
            lane = self.lane
            if recorder.filters is not None and not recorder.filters.wants(self, name):
                return NO_ROW
            if shared is not None and _same(shared[0], args) and not kwargs and not shared[1]:
                arguments, operands, stack = shared[2:]
            else:
                operands = []
                if _len_torch_function_stack():
                    with DisableTorchFunction():
                        arguments = self._values.read_arguments(args, kwargs, operands)
                else:
                    arguments = self._values.read_arguments(args, kwargs, operands)
                stack = self._sources.read(sys._getframe(1).f_back)
            autograd_node = _current_autograd_node()
            node = node_sequence = 0
            if autograd_node is not None:
                node, node_sequence = recorder.read_node(autograd_node)
            now = perf_counter_ns()
            row = lane.begin(
                _OP,
                now,
                name,
                arguments,
                operands,
                state,
                stack,
                _get_sequence_nr(),
                0,
                node,
                node_sequence,
            )
            if node in recorder.node_notes:
                lane.note(row, recorder.node_notes[node])
            return row
        except Exception as fault:
            return recorder.fault(fault)

    def _read_state(self) -> tuple[int, int, int]:
        """The state with which the dispatcher was entered."""
        try:
            # a with statement: no interrupt comes between entering and being sure to leave
            with self._snapshot:
                return self._states.read()
        except RuntimeError:
            # a higher-order operator: Python called the mode, not the dispatcher
            return self._states.read()

    def restores(self, func: Any) -> bool:
        """Whether the operator that has just begun must be called as without the mode."""
        recorder = self.recorder
        return (
            recorder.tensors.saw_complex
            or func in self._names.without_autograd
            or self._states.autocasts(self.excluded)
        )

    def call_restored(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Calls the operator that has just begun as it would be called without the mode."""
        excluded = self.excluded
        if func not in self._names.without_autograd:
            excluded |= self.recorder.below_autograd
        return restoring.call_restored(self.included, excluded, func, args, kwargs)

    def begin_module(self, module: Any, args: Any, kwargs: Any, wanted: bool) -> int:
        """Notes that a module's forward begins, and records it when ``wanted``."""
        recorder = self.recorder
        try:
            reached = recorder.modules.reach(module, self.modules)
            self.modules.append(reached)
            self._shared = None
            if not wanted or (recorder.filters is not None and not recorder.filters.wants(self)):
                return NO_ROW
            operands: list[int] = []
            with DisableTorchFunction():
                arguments = self._values.read_arguments(args, kwargs, operands)
            return self.lane.begin(
                _MODULE,
                perf_counter_ns(),
                reached.number,
                arguments,
                operands,
                self._states.read_python(),
                self._sources.read(sys._getframe(1).f_back),
                _get_sequence_nr(),
                reached.number,
            )
        except Exception as fault:
            return recorder.fault(fault)

    def begin_region(self, name: str, category: str) -> int:
        """Records that a region begins."""
        recorder = self.recorder
        try:
            self._shared = None
            return self.lane.begin(
                _REGION,
                perf_counter_ns(),
                self._names.region(name, category),
                0,
                (),
                self._states.read_python(),
                self._sources.read(sys._getframe(1).f_back),
                _get_sequence_nr(),
            )
        except Exception as fault:
            return recorder.fault(fault)

    def end_region(self, row: int) -> None:
        """Records that a region ends."""
        if row != NO_ROW:
            self._shared = None
            self.lane.end(row, perf_counter_ns(), 0, ())

    def end(self, row: int, result: Any) -> None:
        """Records that a call returned ``result``."""
        now = perf_counter_ns()
        self._shared = None
        if row == NO_ROW:
            return
        try:
            if _len_torch_function_stack():
                with DisableTorchFunction():
                    self._end(row, now, result)
            else:
                self._end(row, now, result)
        except Exception as fault:
            self.recorder.fault(fault)

    def _end(self, row: int, now: int, result: Any) -> None:
        lane = self.lane
        last = self._result
        if last is not None and self._result_rows == lane.count and _unchanged(last, result):
            lane.end(row, now, last[1], last[2])
            return
        operands: list[int] = []
        number = self._values.read_result(result, operands)
        if type(result) in PLAIN_TYPES:
            reference = self._tensors.known[id(result)][0]
            self._result = (
                reference,
                number,
                operands,
                result.requires_grad,
                result._is_view(),
            )
            self._result_rows = lane.count
        lane.end(row, now, number, operands)

    def note(self, row: int, rule: str, text: str) -> None:
        """Attaches a note to an event of this thread."""
        try:
            self.lane.note(row, self.recorder.read_note(rule, text))
        except Exception as fault:
            self.recorder.fault(fault)

    def function_around(self, row: int) -> str | None:
        """The name of the function that an operator was called from directly, if there was one."""
        lane = self.lane
        parent = lane.read("parent", row) - 1
        if parent < 0 or lane.read("kind", parent) != _FUNCTION:
            return None
        return self._names.texts.get(lane.read("name", parent))

    def node_name(self, row: int) -> str | None:
        """The autograd node in which an event of this thread ran."""
        return self.recorder.node_names.get(self.lane.read("node", row))

    def fail(self, mark: int, error: BaseException) -> None:
        """Records that an exception left everything open above the ``mark`` outermost events."""
        now = perf_counter_ns()
        self._shared = None
        try:
            self.lane.unwind(mark, now, self.recorder.read_error(error))
        except Exception as fault:
            self.recorder.fault(fault)


def _same(these: Any, those: Any) -> bool:
    """Whether two tuples hold the very same objects."""
    if len(these) != len(those):
        return False
    return all(map(operator.is_, these, those))


def _unchanged(last: Any, result: Any) -> bool:
    """Whether what autograd may still change of an operator's result is as it was."""
    return last[0]() is result and result.requires_grad is last[3] and result._is_view() is last[4]
