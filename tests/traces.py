"""Builds traces on disk from the notation, so that tests show what they are about."""

from __future__ import annotations

import os
from pathlib import Path

from dispatch_inspect.notation import CallPattern, Operand, TensorPattern, parse_tree
from dispatch_inspect.store import records
from dispatch_inspect.store.lane_writer import LaneWriter
from dispatch_inspect.store.layout import KIND_CODES
from dispatch_inspect.store.writer import TraceWriter, create_trace

LAYOUT = records.KeyLayout(
    backends=("CPU", "Meta"),
    functionalities=(
        ("CPU", "Meta"),
        ("BackendSelect",),
        ("Python",),
        ("ADInplaceOrView",),
        ("AutogradCPU", "AutogradMeta"),
    ),
)
#: keys of a CPU tensor in LAYOUT: the CPU bit, the dense bit, ADInplaceOrView, Autograd
CPU_KEYS = 0b1100101
KERNELS = {
    "registered at VariableType.cpp:1 [autograd kernel]": ("AutogradCPU", "AutogradMeta"),
    "registered at RegisterCPU.cpp:2 [kernel]": ("CPU",),
    "fallthrough registered at Fallback.cpp:3 [backend fallback]": ("ADInplaceOrView",),
}


class Builder:
    """Writes calls as if they had run: each takes one microsecond more than its children."""

    def __init__(self, path: Path) -> None:
        create_trace(path)
        process = records.Process(pid=os.getpid(), torch="0", keys=LAYOUT)
        self.writer = TraceWriter(path, process)
        self.clock = 1_000
        self.tensors = 0

    def lane(self, name: str) -> LaneWriter:
        lane = self.writer.lane(records.Lane(thread=name))
        assert lane is not None
        return lane

    def write(self, lane: LaneWriter, text: str) -> None:
        for call in parse_tree(text):
            assert isinstance(call, CallPattern)
            self._call(lane, call)

    def _call(self, lane: LaneWriter, call: CallPattern) -> None:
        tables = self.writer.tables
        record = _name(call)
        name = tables["names"].intern(record.model_dump_json(), lambda: record)
        inputs, arguments = self._operands(call.inputs or ())
        state = tables["states"].intern("state", records.State)
        row = lane.begin(
            KIND_CODES[call.kind],
            self._tick(),
            name,
            arguments,
            inputs,
            state,
            0,
            0,
            name if call.kind == "module" else 0,
        )
        for child in call.children:
            assert isinstance(child, CallPattern)
            self._call(lane, child)
        if call.error == "open":
            return
        if call.error is not None:
            kind = call.error
            error = tables["errors"].intern(kind, lambda: records.ErrorRecord(type=kind))
            lane.fail(row, self._tick(), error)
            return
        outputs, result = self._operands(call.outputs or ())
        lane.end(row, self._tick(), result, outputs)

    def _tick(self) -> int:
        self.clock += 1_000
        return self.clock

    def _operands(
        self, operands: tuple[Operand, ...]
    ) -> tuple[list[tuple[int, int, int, int]], int]:
        found = []
        forms: list[object] = []
        for operand in operands:
            group = operand if isinstance(operand, tuple) else (operand,)
            found += [self._tensor(tensor) for tensor in group]
            holes: list[object] = [{"tensor": None} for _ in group]
            forms.append(holes if isinstance(operand, tuple) else holes[0])
        values = records.Values(args=tuple(forms))
        return found, self.writer.tables["values"].intern(values.model_dump_json(), lambda: values)

    def _tensor(self, tensor: TensorPattern) -> tuple[int, int, int, int]:
        shape = tensor.shape or ()
        strides = tensor.strides if tensor.strides is not None else _dense(shape)
        record = records.Descriptor(
            dtype=tensor.dtype,
            device=tensor.device,
            shape=shape,
            strides=strides,
            layout=tensor.layout,
            keys=CPU_KEYS,
        )
        table = self.writer.tables["descriptors"]
        self.tensors += 1
        number = table.intern(record.model_dump_json(), lambda: record)
        return number, self.tensors, self.tensors, 1


def _dense(shape: tuple[int | str, ...]) -> tuple[int | str, ...]:
    strides: list[int | str] = []
    step = 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= max(int(size), 1)
    return tuple(strides)


def _name(call: CallPattern) -> records.Record:
    if call.kind == "module":
        root, _, path = call.name.partition(".")
        return records.ModuleName(kind="module", name=call.name, path=path, type=root, root=root)
    if call.kind == "function":
        return records.FunctionName(kind="function", name=call.name)
    if call.kind == "region":
        return records.RegionName(kind="region", name=call.name)
    return records.OperatorName(kind="op", name=call.name, kernels=KERNELS)


def build(path: Path, text: str, **lanes: str) -> Path:
    """A trace of what ``text`` writes on the main thread, and of other threads by name."""
    builder = Builder(path)
    builder.write(builder.lane("MainThread"), text)
    for name, other in lanes.items():
        builder.write(builder.lane(name), other)
    builder.writer.close()
    return path
