"""One event of a trace, read from the columns as its properties are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dispatch_inspect import keys
from dispatch_inspect.store import linking
from dispatch_inspect.store.layout import CALLED, KINDS, OPEN, TRACERS
from dispatch_inspect.store.records import ErrorRecord, Frame, Note, OperatorName, State, Values
from dispatch_inspect.store.tensor import TensorInfo
from dispatch_inspect.store.values import decode, tensors_in

if TYPE_CHECKING:
    from dispatch_inspect.store.reader import StoredTrace


@dataclass(frozen=True, slots=True)
class Mode:
    """The thread's modes when an event began."""

    #: whether gradients were recorded (torch.is_grad_enabled)
    grad: bool = True
    #: whether inference mode was on
    inference: bool = False
    #: device type -> dtype where autocast was on, as "cpu:bfloat16"
    autocast: tuple[str, ...] = ()


class Event:
    """A recorded call: a module's forward, a function, an operator, a hop or a region."""

    __slots__ = ("_trace", "id")

    def __init__(self, trace: StoredTrace, row: int) -> None:
        if not 0 <= row < len(trace):
            raise IndexError(row)
        self._trace = trace
        #: position in the trace, from 0
        self.id = row

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name} #{self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Event) and (self._trace, self.id) == (other._trace, other.id)

    def __hash__(self) -> int:
        return hash((id(self._trace), self.id))

    def _number(self, column: str) -> int:
        return int(self._trace.column(column)[self.id])

    def _record(self, column: str, table: str) -> Any:
        return self._trace.table(table).get(self._number(column))

    @property
    def kind(self) -> str:
        """module, function, op, hop or region; "unknown" where the trace is damaged."""
        code = self._number("kind")
        return KINDS[code - 1] if 0 < code <= len(KINDS) else "unknown"

    @property
    def name(self) -> str:
        """What was called: "aten::add.Tensor", "torch.add", "Net.layers.0", "backward"."""
        record = self._record("name", "names")
        return record.name if record is not None else "?"

    @property
    def depth(self) -> int:
        """How many events it is in; 0 for a root."""
        return self._number("depth")

    @property
    def parent(self) -> Event | None:
        """The event it was called from."""
        row = self._number("parent") - 1
        return Event(self._trace, row) if 0 <= row < self.id else None

    @property
    def children(self) -> list[Event]:
        """The events called directly from it."""
        trace = self._trace
        end = trace.subtree_end(self.id)
        found, row = [], self.id + 1
        while row < end:
            found.append(Event(trace, row))
            row = max(row + 1, trace.subtree_end(row))
        return found

    @property
    def thread(self) -> str:
        """The name of its thread."""
        return str(self._trace.part_of(self.id)[1].lane.thread)

    @property
    def process(self) -> int:
        """The number (pid) of its process."""
        return self._trace.part_of(self.id)[0].process.pid

    @property
    def begin_ns(self) -> int:
        """When it began, in nanoseconds of time.perf_counter_ns."""
        return self._number("begin_ns")

    @property
    def duration_ns(self) -> int | None:
        """How long it took, recording of what it called included; None while open."""
        end = self._number("end_ns")
        return None if self.is_open or end < self.begin_ns else end - self.begin_ns

    @property
    def self_ns(self) -> int | None:
        """Its duration without its children's."""
        duration = self.duration_ns
        if duration is None:
            return None
        return max(0, duration - sum(child.duration_ns or 0 for child in self.children))

    @property
    def is_open(self) -> bool:
        """Whether its end was not recorded: the program died in it, or is still in it."""
        return self._number("outcome") == OPEN

    @property
    def args(self) -> dict[str, Any]:
        """Arguments by schema or parameter name; positions without a name are "0", "1" ..."""
        values = self._record("arguments", "values")
        if not isinstance(values, Values):
            return {}
        tensors = self._tensors("input_at")
        names = getattr(self._record("name", "names"), "arguments", ())
        found: dict[str, Any] = {}
        for place, form in enumerate(values.args):
            name = names[place] if place < len(names) else str(place)
            found[name] = decode(form, tensors)
        for name, form in values.kwargs.items():
            found[name] = decode(form, tensors)
        return found

    @property
    def outputs(self) -> tuple[Any, ...]:
        """What it returned; the elements of a tuple or list, nothing for None."""
        values = self._record("result", "values")
        if not isinstance(values, Values):
            return ()
        tensors = self._tensors("output_at")
        return tuple(decode(form, tensors) for form in values.args)

    @property
    def aliases(self) -> tuple[tuple[int, str], ...]:
        """Pairs (index of an output, name of an argument) that share storage."""
        storages = [
            (name, {one.storage_id for one in tensors_in(value)} - {None})
            for name, value in self.args.items()
        ]
        return tuple(
            (index, name)
            for index, output in enumerate(self.outputs)
            for name, shared in storages
            if any(one.storage_id in shared for one in tensors_in(output))
        )

    @property
    def mode(self) -> Mode:
        """Grad, inference and autocast mode when it began."""
        state = self._state
        return Mode(
            grad=state.grad,
            inference=state.inference,
            autocast=tuple(f"{device}:{dtype}" for device, dtype in state.autocast.items()),
        )

    @property
    def keyset(self) -> tuple[str, ...]:
        """The key set with which the dispatcher was entered, highest priority first.

        Of a hop, that with which its kernel was entered. Of an op, that of the arguments with the
        thread's included keys, without its excluded ones; keys that only this tool's modes added
        are left out. Other events have none.
        """
        layout = self._trace.part_of(self.id)[0].process.keys
        if layout is None or self.kind not in ("op", "hop"):
            return ()
        if self.kind == "hop":
            return keys.names(self._number("keyset"), layout)
        raw = 0
        for value in self._raw_keys():
            raw |= value
        state = self._state
        return keys.names((raw | state.included) & ~state.excluded, layout)

    @property
    def route(self) -> tuple[tuple[str, str], ...]:
        """The keys with a kernel that the call passes, as (key, kernel), top to bottom.

        Of a hop, what it passed: itself and what it redispatched to. Of an op, a prediction from
        the key set and the dispatch table at the operator's first call.
        """
        record = self._record("name", "names")
        if not isinstance(record, OperatorName):
            return ()
        if self.kind == "hop":
            return tuple((hop.key or "", hop.kernel or "") for hop in self._redispatches())
        return keys.answering(self.keyset, record.kernels)

    @property
    def key(self) -> str | None:
        """The dispatch key whose kernel ran.

        Of a hop, the key it was entered for; of an op, the key whose kernel the call went on to
        below the Python key.
        """
        if self.kind not in ("op", "hop"):
            return None
        if self.kind == "hop":
            return (*self.keyset, "Undefined")[0]
        below = [key for key, _ in self.route if not keys.above_python(key) and key != "Python"]
        return below[0] if below else None

    @property
    def kernel(self) -> str | None:
        """Of a hop, where its kernel was registered and by which rule it answers, as PyTorch says.

        For example "registered at .../RegisterCPU.cpp:3110 [kernel]". None where there was none.
        """
        record = self._record("name", "names")
        if self.kind != "hop" or not isinstance(record, OperatorName):
            return None
        key = self.key
        return next((text for text, names in record.kernels.items() if key in names), None)

    @property
    def entered_by(self) -> str | None:
        """Of a hop, how the dispatcher was entered: "call" or "redispatch"."""
        if self.kind != "hop":
            return None
        return "call" if self._number("flags") & CALLED else "redispatch"

    @property
    def is_tracers(self) -> bool:
        """Whether a hop is there only because the tracer's own modes are on."""
        return bool(self._number("flags") & TRACERS)

    def _redispatches(self) -> Iterator[Event]:
        hop: Event | None = self
        while hop is not None:
            yield hop
            name = hop.name
            hop = next(
                (
                    one
                    for one in hop.children
                    if one.kind == "hop" and one.name == name and one.entered_by == "redispatch"
                ),
                None,
            )

    @property
    def error(self) -> ErrorRecord | None:
        """The exception that left it, with ``type`` and ``message``."""
        found = self._record("error", "errors")
        return found if isinstance(found, ErrorRecord) else None

    @property
    def module(self) -> str | None:
        """The qualified name, below its root, of the module it was called in; "" is the root."""
        record = self._record("module", "names")
        return getattr(record, "path", None)

    @property
    def module_name(self) -> str | None:
        """The same with the root's class before it: "Net.layers.0"."""
        record = self._record("module", "names")
        return record.name if record is not None and record.kind == "module" else None

    @property
    def stack(self) -> tuple[Frame, ...]:
        """The user's line, or with ``stacks=True`` the Python stack, innermost first.

        A hop has that of the event around it which has one: kernels know no Python.
        """
        stacks, frames = self._trace.table("stacks"), self._trace.table("frames")
        offset, frame_offset = self._offset("stacks"), self._offset("frames")
        found: list[Frame] = []
        record = stacks.get(self._stack_number())
        while record is not None and len(found) < 10_000:
            frame = frames.get(record.frame + frame_offset + 1)
            if frame is not None:
                found.append(frame)
            record = None if record.caller is None else stacks.get(record.caller + offset + 1)
        return tuple(found)

    def _stack_number(self) -> int:
        around: Event | None = self
        while around is not None and around.kind == "hop" and not around._number("stack"):
            around = around.parent
        return 0 if around is None else around._number("stack")

    @property
    def node(self) -> str | None:
        """The autograd node that was run backward: "MmBackward0"."""
        record = self._record("node", "nodes")
        return None if record is None else str(record.name)

    @property
    def backward_of(self) -> Event | None:
        """The operator of the forward pass whose gradient it computes."""
        row = linking.forward_of(self._trace, self.id)
        return None if row is None else Event(self._trace, row)

    @property
    def note(self) -> Note | None:
        """What the tracer could not help changing here: a rule and a sentence."""
        found = self._record("note", "notes")
        return found if isinstance(found, Note) else None

    @property
    def _state(self) -> State:
        found = self._record("state", "states")
        return found if isinstance(found, State) else State()

    def _offset(self, table: str) -> int:
        """Ids inside records count from the start of their own process's tables."""
        process = self._trace.part_of(self.id)[0]
        place = self._trace.processes.index(process)
        return int(self._trace.table(table).offsets[place])

    def _operand_rows(self, column: str) -> Iterator[int]:
        owners = self._trace.operand_column("operand_event")
        descriptors = self._trace.operand_column("operand_descriptor")
        row = self._number(column)
        while row < len(owners) and int(owners[row]) == self.id and descriptors[row]:
            yield row
            row += 1

    def _raw_keys(self) -> Iterator[int]:
        values = self._record("arguments", "values")
        if not isinstance(values, Values):
            return
        descriptors = self._trace.operand_column("operand_descriptor")
        for row, _ in zip(self._operand_rows("input_at"), range(values.tensor_count), strict=False):
            record = self._trace.table("descriptors").get(int(descriptors[row]))
            yield 0 if record is None else record.keys

    def _tensors(self, column: str) -> Iterator[TensorInfo]:
        trace = self._trace
        layout = trace.part_of(self.id)[0].process.keys
        numbers = [
            trace.operand_column(f"operand_{name}")
            for name in ("descriptor", "tensor", "storage", "version")
        ]
        for row in self._operand_rows(column):
            descriptor, tensor, storage, version = (int(one[row]) for one in numbers)
            record = trace.table("descriptors").get(descriptor)
            known = {} if record is None else record.model_dump(exclude={"keys"})
            yield TensorInfo(
                **known,
                keys=keys.names(record.keys, layout) if record is not None and layout else (),
                tensor_id=tensor - 1 if tensor else None,
                storage_id=storage - 1 if storage else None,
                version=version - 1 if version else None,
            )
