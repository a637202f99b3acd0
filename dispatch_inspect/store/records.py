"""What is not a number in a trace: pydantic records, one JSON line each.

A record's id is its line number in the table's file, from 0. Records may repeat: the recorder
forgets old ones to stay small, so equal ids mean equal records but not the reverse.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Record(BaseModel):
    """Base of all records: immutable; fields of newer writers are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Format(Record):
    """``trace.json``: says that a directory is a trace."""

    format: str
    version: int
    #: names the launch when several processes write to one trace
    run: str = ""


class KeyLayout(Record):
    """What each bit of a raw dispatch key set means, as the recording PyTorch printed it."""

    #: names of the backend bits, lowest bit first
    backends: tuple[str, ...]
    #: for each functionality bit above them, lowest first: one key name, or one a backend
    functionalities: tuple[tuple[str, ...], ...]


class Process(Record):
    """``process.json``: who recorded, where, with what."""

    pid: int
    parent_pid: int | None = None
    rank: int = 0
    argv: tuple[str, ...] = ()
    cwd: str = ""
    hostname: str = ""
    python: str = ""
    torch: str = ""
    tool: str = ""
    layers: tuple[str, ...] = ()
    stacks: bool = False
    #: time.time_ns() and time.perf_counter_ns() at the same moment
    started_unix_ns: int = 0
    started_ns: int = 0
    keys: KeyLayout | None = None


class End(Record):
    """``end.json``: how recording ended."""

    ended_ns: int
    #: closed; limit (max_events); disk (no space left); error
    reason: Literal["closed", "limit", "disk", "error"] = "closed"
    message: str = ""
    #: calls that the tracer knows it did not record, by cause
    missed: dict[str, int] = {}


class Lane(Record):
    """``lane.json``: the thread whose events a lane holds."""

    thread: str
    ident: int = 0
    native_id: int = 0


class OperatorName(Record):
    """An operator overload and its dispatch table when it was first called."""

    kind: Literal["op"]
    name: str
    schema_text: str = ""
    #: schema names of the arguments, in order
    arguments: tuple[str, ...] = ()
    #: what each schema argument or return aliases: "a", "a!" (written), "" (nothing)
    argument_aliases: tuple[str, ...] = ()
    return_aliases: tuple[str, ...] = ()
    #: computed table: kernel text as PyTorch prints it -> the runtime keys it answers
    kernels: dict[str, tuple[str, ...]] = {}


class FunctionName(Record):
    """A Python-level torch call."""

    kind: Literal["function"]
    name: str
    arguments: tuple[str, ...] = ()


class ModuleName(Record):
    """An nn.Module as it was reached: ``path`` is its qualified name below ``root``."""

    kind: Literal["module"]
    #: class of the root module and the path: "Net.a.shared"
    name: str
    path: str = ""
    type: str = ""
    root: str = ""
    #: parameters of its forward
    arguments: tuple[str, ...] = ()


class RegionName(Record):
    """A named stretch of the program."""

    kind: Literal["region"]
    name: str
    #: backward, record_function, optimizer, recompute, compiled
    category: str = ""


Name = Annotated[OperatorName | FunctionName | ModuleName | RegionName, Field(discriminator="kind")]


class Values(Record):
    """The arguments or the result of a call, with a hole for each tensor.

    A value is a JSON scalar (int, str, bool, null, finite float), a list, or a one-key object:
    ``{"tensor": null}`` (the next operand), ``{"tuple": [...]}``, ``{"dict": [[k, v], ...]}``,
    ``{"set": [...]}``, ``{"slice": [start, stop, step]}``, ``{"float": "nan"}``,
    ``{"complex": ["1.0", "-inf"]}``, ``{"dtype": "float32"}``, ``{"device": "cpu"}``,
    ``{"layout": "strided"}``, ``{"memory_format": "channels_last"}``, ``{"symbol": "s0"}``,
    ``{"object": "pkg.Type"}``, ``{"text": "cut ...", "length": 70000}``,
    ``{"more": 123}`` (so many further elements of this list were not kept).
    """

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}

    @property
    def tensor_count(self) -> int:
        """How many tensors belong into it."""
        return sum(map(_holes, (*self.args, *self.kwargs.values())))


def _holes(form: Any) -> int:
    if isinstance(form, list):
        return sum(map(_holes, form))
    if isinstance(form, dict) and form:
        kind, inner = next(iter(form.items()))
        return 1 if kind == "tensor" else _holes(inner)
    return 0


class Descriptor(Record):
    """A tensor without its identity; None where reading it would have raised or run user code."""

    dtype: str | None = None
    device: str | None = None
    shape: tuple[int | str, ...] | None = None
    strides: tuple[int | str, ...] | None = None
    storage_offset: int | str | None = None
    layout: str | None = None
    #: raw key set, see KeyLayout
    keys: int = 0
    requires_grad: bool | None = None
    is_leaf: bool | None = None
    is_view: bool | None = None
    is_wrapped_number: bool | None = None
    nbytes: int | None = None
    #: qualified class name when it is not torch.Tensor
    subclass: str | None = None


class State(Record):
    """The thread's modes when an event began."""

    grad: bool = True
    inference: bool = False
    #: device type -> dtype while autocast is on: {"cpu": "bfloat16"}
    autocast: dict[str, str] = {}
    #: raw key sets of the thread at the moment ``moment``, tracer's own keys taken out
    included: int = 0
    excluded: int = 0


class Frame(Record):
    """A line of the program with the lines around it."""

    file: str
    line: int
    function: str = ""
    #: number of ``source[0]``; ``source`` is empty when the file could not be read
    first: int = 0
    source: tuple[str, ...] = ()


class Stack(Record):
    """A frame and the stack that called it: ids of frames and stacks."""

    frame: int
    #: id of the calling stack; None at the outermost recorded frame
    caller: int | None = None


class Node(Record):
    """An autograd node by name: "AddmmBackward0"."""

    name: str


class ErrorRecord(Record):
    """An exception as it passed: its type and the text of its message (first 2,000 characters)."""

    type: str
    message: str = ""


class Note(Record):
    """Something the reader must know: a rule id and a sentence."""

    rule: str
    text: str


#: table -> record type; the file is TABLE.jsonl
TABLES: dict[str, Any] = {
    "names": Name,
    "values": Values,
    "descriptors": Descriptor,
    "states": State,
    "frames": Frame,
    "stacks": Stack,
    "nodes": Node,
    "errors": ErrorRecord,
    "notes": Note,
}

#: event column -> the table it points into (as id + 1)
POINTERS: dict[str, str] = {
    "name": "names",
    "module": "names",
    "arguments": "values",
    "result": "values",
    "state": "states",
    "stack": "stacks",
    "node": "nodes",
    "error": "errors",
    "note": "notes",
    "operand_descriptor": "descriptors",
}
