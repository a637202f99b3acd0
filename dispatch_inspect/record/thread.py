"""What one thread records: the hot path, from a call to the numbers in its lane.

A function call and the first operator it dispatches usually have the very same arguments, and no
Python runs between the two, so the second does not read them again; likewise for what both return.
"""

from __future__ import annotations

import sys
from functools import partial
from operator import is_, methodcaller
from time import perf_counter_ns
from types import FunctionType
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch._C import (  # type: ignore[attr-defined]
    DisableTorchFunction,
    _current_autograd_node,
    _dispatch_tls_local_exclude_set,
    _dispatch_tls_local_include_set,
    _RestorePythonTLSSnapshot,
)
from torch._C._autograd import _get_sequence_nr
from torch.nn import Parameter

from dispatch_inspect.record import restoring
from dispatch_inspect.store.lane_writer import NO_ROW, LaneWriter, Operand
from dispatch_inspect.store.layout import KIND_CODES

if TYPE_CHECKING:
    from dispatch_inspect.record.modules import Reached
    from dispatch_inspect.record.names import KnownOperator
    from dispatch_inspect.record.recorder import Recorder

_CALL = methodcaller("__call__")
_MODULE = KIND_CODES["module"]
_REGION = KIND_CODES["region"]
_FUNCTION = KIND_CODES["function"]
_OP = KIND_CODES["op"]


class ThreadRecorder:
    """Records the calls of one thread. Nothing here raises into the traced program."""

    __slots__ = (
        "_begin",
        "_names",
        "_one_tensor",
        "_read_arguments",
        "_read_entry",
        "_read_stack",
        "_result",
        "_shared",
        "_states",
        "_values",
        "aside",
        "blocks",
        "lane",
        "modules",
        "open",
        "operators",
        "recorder",
        "state",
        "tensors",
    )

    def __init__(self, recorder: Recorder, lane: LaneWriter) -> None:
        self.recorder = recorder
        self.lane = lane
        #: the lane's open events, outermost first
        self.open = lane.open
        self._begin = lane.begin
        self.operators = recorder.names.operators
        self._read_arguments = recorder.values.read_arguments
        self._read_stack = recorder.sources.read
        self._one_tensor = recorder.values.one_tensor
        self._names = recorder.names
        self._values = recorder.values
        self.tensors = recorder.tensors
        self._states = recorder.states
        snapshot = _RestorePythonTLSSnapshot()
        #: reads the key sets with which the dispatcher was entered. While they are restored no
        #: Python may run: a signal handler that calls torch would reach the mode that is off.
        #: So all four are called from C, one after another.
        self._read_entry = (
            snapshot.__enter__,
            _dispatch_tls_local_include_set,
            _dispatch_tls_local_exclude_set,
            partial(snapshot.__exit__, None, None, None),
        )
        #: the function call that has just begun: (args, kwargs, number, operands, stack)
        self._shared: Any = None
        #: the tensor returned last: (weak reference, events then, requires_grad, is_view, operands)
        self._result: Any = None
        #: the operator for which the mode steps aside, see calls.OperatorMode
        self.aside: Any = None
        #: modules whose forward is running, outermost first, see modules
        self.modules: list[Reached] = []
        #: open record_function blocks, see regions
        self.blocks: list[int] = []
        #: the state with which the dispatcher was entered for the last operator, see states.read
        self.state = (0, 0, 0, False)

    def learn_operator(self, func: Any) -> KnownOperator:
        """What a call of an operator needs, at its first call."""
        return self._names.operator(func)

    def begin_function(self, func: Any, args: Any, kwargs: Any, quiet: bool) -> int:
        """Records that a Python-level torch call begins; called by the mode's handler.

        ``quiet`` says that no function mode is on, which reading a tensor would enter.
        """
        recorder = self.recorder
        try:
            name = self._names.functions.get(func) or self._names.function(func)
            if recorder.filters is not None and not recorder.filters.wants(self, name):
                return NO_ROW
            operands: list[Operand] = []
            if quiet:
                arguments = self._read_arguments(args, kwargs, operands)
            else:
                with DisableTorchFunction():
                    arguments = self._read_arguments(args, kwargs, operands)
            stack = self._read_stack(sys._getframe(1).f_back)
            if type(func) is not FunctionType:
                # no Python runs until its first operator
                self._shared = (args, kwargs, arguments, operands, stack)
            return self._begin(
                _FUNCTION,
                perf_counter_ns(),
                name,
                arguments,
                operands,
                self._states.read_python(),
                stack,
                0,
            )
        except Exception as fault:
            return recorder.fault(fault)

    def begin_operator(self, name: int, args: Any, kwargs: Any, quiet: bool) -> int:
        """Records that an operator call begins at the Python key; called by the mode's handler."""
        recorder = self.recorder
        try:
            shared, self._shared = self._shared, None
            try:
                _, included, excluded, _ = tuple(map(_CALL, self._read_entry))
                self.state = state = self._states.number(included, excluded)
            except RuntimeError:
                # a higher-order operator: Python called the mode, not the dispatcher
                self.state = state = self._states.read()
            if recorder.filters is not None and not recorder.filters.wants(self, name):
                return NO_ROW
            if (
                shared is not None
                and not kwargs
                and not shared[1]
                and len(shared[0]) == len(args)
                and all(map(is_, shared[0], args))
            ):
                _, _, arguments, operands, stack = shared
            else:
                operands = []
                if quiet:
                    arguments = self._read_arguments(args, kwargs, operands)
                else:
                    with DisableTorchFunction():
                        arguments = self._read_arguments(args, kwargs, operands)
                stack = self._read_stack(sys._getframe(1).f_back)
            autograd_node = _current_autograd_node()
            if autograd_node is None:
                return self._begin(
                    _OP,
                    perf_counter_ns(),
                    name,
                    arguments,
                    operands,
                    state[0],
                    stack,
                    _get_sequence_nr(),
                )
            return self._begin_in_backward(
                autograd_node, name, arguments, operands, state[0], stack
            )
        except Exception as fault:
            return recorder.fault(fault)

    def _begin_in_backward(
        self,
        autograd_node: Any,
        name: int,
        arguments: int,
        operands: list[Operand],
        state: int,
        stack: int,
    ) -> int:
        recorder = self.recorder
        node, node_sequence = recorder.read_node(autograd_node)
        row = self._begin(
            _OP,
            perf_counter_ns(),
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
            self.lane.note(row, recorder.node_notes[node])
        return row

    def call_restored(self, known: KnownOperator, args: Any, kwargs: Any) -> Any:
        """Calls the operator that has just begun as it would be called without the mode."""
        _, included, excluded, _ = self.state
        if not known.without_autograd:
            excluded |= self.recorder.below_autograd
        return restoring.call_restored(included, excluded, known.call, args, kwargs)

    def begin_module(self, module: Any, args: Any, kwargs: Any, wanted: bool) -> int:
        """Notes that a module's forward begins, and records it when ``wanted``."""
        recorder = self.recorder
        try:
            reached = recorder.modules.reach(module, self.modules)
            self.modules.append(reached)
            self._shared = None
            if not wanted or (recorder.filters is not None and not recorder.filters.wants(self)):
                return NO_ROW
            operands: list[Operand] = []
            with DisableTorchFunction():
                arguments = self._values.read_arguments(args, kwargs, operands)
            return self._begin(
                _MODULE,
                perf_counter_ns(),
                reached.number,
                arguments,
                operands,
                self._states.read_python(),
                self._read_stack(sys._getframe(1).f_back),
                _get_sequence_nr(),
                reached.number,
            )
        except Exception as fault:
            return recorder.fault(fault)

    def gate_hops(self) -> None:
        """Tells the probe whether hops are wanted inside the module that runs now."""
        recorder = self.recorder
        if recorder.want_hops is not None:
            recorder.want_hops(recorder.filters.wants(self))

    def begin_region(self, name: str, category: str) -> int:
        """Records that a region begins."""
        recorder = self.recorder
        try:
            self._shared = None
            return self._begin(
                _REGION,
                perf_counter_ns(),
                self._names.region(name, category),
                0,
                (),
                self._states.read_python(),
                self._read_stack(sys._getframe(1).f_back),
                _get_sequence_nr(),
            )
        except Exception as fault:
            return recorder.fault(fault)

    def end_region(self, row: int) -> None:
        """Records that a region ends."""
        if row != NO_ROW:
            self._shared = None
            self.lane.end(row, perf_counter_ns(), 0, ())

    def end(self, row: int, result: Any, quiet: bool) -> None:
        """Records that a call returned ``result``."""
        now = perf_counter_ns()
        self._shared = None
        if row == NO_ROW:
            return
        if not quiet:
            with DisableTorchFunction():
                self.end(row, result, True)
            return
        try:
            lane = self.lane
            operands: list[Operand] = []
            kind = type(result)
            if kind is not Tensor and kind is not Parameter:
                number = self._values.read_result(result, operands)
                lane.end(row, now, number, operands)
                return
            last = self._result
            if (
                last is not None
                and last[0]() is result
                and last[1] == lane.count
                and result.requires_grad is last[2]
                and result._is_view() is last[3]
            ):
                # what the operator under this function has just returned
                operands = last[4]
            else:
                known = self.tensors.read(result, operands)
                if known is not None:
                    self._result = (
                        known[0],
                        lane.count,
                        result.requires_grad,
                        result._is_view(),
                        operands,
                    )
            lane.end(row, now, self._one_tensor, operands)
        except Exception as fault:
            self.recorder.fault(fault)

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
