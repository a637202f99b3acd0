"""One process's recording: the tables' readers and the lane of each thread."""

from __future__ import annotations

import os
import platform
import socket
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import torch

from dispatch_inspect._version import __version__
from dispatch_inspect.record.modules import ModuleNames
from dispatch_inspect.record.names import NameReader
from dispatch_inspect.record.notes import NOTED_NODES, OTHER_PATH
from dispatch_inspect.record.probe import ProbeTensorReader, ProbeWriter, available
from dispatch_inspect.record.restoring import excluding_mask
from dispatch_inspect.record.sources import SourceReader
from dispatch_inspect.record.states import StateReader, key_layout
from dispatch_inspect.record.tensors import TensorReader
from dispatch_inspect.record.thread import ThreadRecorder
from dispatch_inspect.record.values import ValueReader
from dispatch_inspect.store.lane_writer import NO_ROW
from dispatch_inspect.store.records import ErrorRecord, Lane, Node, Note, Process
from dispatch_inspect.store.writer import TraceWriter


class Recorder:
    """Everything that belongs to this process's part of a trace; a forked child makes its own."""

    def __init__(
        self,
        path: Path,
        *,
        layers: tuple[str, ...],
        stacks: bool,
        max_events: int | None,
        threads: bool = True,
        names: tuple[str, ...] | None = None,
        gated: bool = False,
        parent_pid: int | None = None,
    ) -> None:
        layout = key_layout()
        process = Process(
            pid=os.getpid(),
            parent_pid=parent_pid,
            rank=int(os.environ.get("RANK") or 0),
            argv=tuple(sys.argv),
            cwd=os.getcwd(),
            hostname=socket.gethostname(),
            python=platform.python_version(),
            torch=torch.__version__,
            tool=__version__,
            layers=layers,
            stacks=stacks,
            started_unix_ns=time.time_ns(),
            started_ns=time.perf_counter_ns(),
            keys=layout,
        )
        child_pid = None if parent_pid is None else process.pid
        #: says whether hops are wanted now, where that depends on the module; see filters
        self.want_hops: Any = None
        self.writer: TraceWriter
        self.tensors: Any
        if "hops" in layers or available():
            writer = ProbeWriter(
                path,
                process,
                max_events=max_events,
                child_pid=child_pid,
                threads=threads,
                names=names,
                gated=gated,
            )
            self.writer, self.tensors = writer, ProbeTensorReader(writer.native)
            self.want_hops = writer.native.want if gated else None
        else:
            self.writer = TraceWriter(path, process, max_events=max_events, child_pid=child_pid)
            self.tensors = TensorReader(self.writer.tables["descriptors"])
        tables = self.writer.tables
        self.values = ValueReader(tables["values"], self.tensors)
        self.names = NameReader(tables["names"])
        self.states = StateReader(tables["states"], layout)
        self.modules = ModuleNames(tables["names"])
        self.below_autograd = excluding_mask(layout)
        self.sources = SourceReader(tables["frames"], tables["stacks"], whole=stacks)
        #: number -> name of autograd nodes seen
        self.node_names: dict[int, str] = {}
        #: number of such a node -> number of the note at its events
        self.node_notes: dict[int, int] = {}
        self._errors = tables["errors"]
        self._nodes = tables["nodes"]
        self._notes = tables["notes"]
        #: which events are wanted, see filters; None for all
        self.filters: Any = None

    def open_thread(self) -> ThreadRecorder | None:
        """Makes the recorder of the calling thread, or None when recording is over."""
        ident = threading.get_ident()
        # threading.current_thread() would register threads that Python did not start
        thread = next((one for one in threading.enumerate() if one.ident == ident), None)
        native = threading.get_native_id()
        name = thread.name if thread is not None else f"native thread {native}"
        lane = self.writer.lane(Lane(thread=name, ident=ident, native_id=native), thread)
        return None if lane is None else ThreadRecorder(self, lane)

    def read_error(self, error: BaseException) -> int:
        """The number of an exception; its message is kept when it is plain text."""
        kind = type(error)
        name = kind.__qualname__
        if kind.__module__ not in ("builtins", "__main__"):
            name = f"{kind.__module__}.{name}"
        message = _message(error)
        return self._errors.intern((name, message), lambda: ErrorRecord(type=name, message=message))

    def read_node(self, node: Any) -> tuple[int, int]:
        """The numbers of an autograd node: its name's and its sequence number + 1."""
        name = node.name()
        number = self._nodes.intern(name, lambda: Node(name=name))
        self.node_names[number] = name
        if name in NOTED_NODES:
            self.node_notes[number] = self.read_note(*OTHER_PATH)
        return number, (node._sequence_nr() + 1) & 0xFFFFFFFFFFFFFFFF

    def read_note(self, rule: str, text: str) -> int:
        """The number of a note."""
        return self._notes.intern((rule, text), lambda: Note(rule=rule, text=text))

    def fault(self, fault: Exception) -> int:
        """Counts a fault of the tracer, which must not become the program's."""
        where = traceback.extract_tb(fault.__traceback__)[-1]
        self.miss(
            f"fault of the tracer: {type(fault).__name__} in {where.name} "
            f"({os.path.basename(where.filename)}:{where.lineno})"
        )
        if os.environ.get("DISPATCH_INSPECT_RAISE_FAULTS"):
            raise fault
        return NO_ROW

    def miss(self, cause: str) -> None:
        """Counts a call that is not recorded."""
        missed = self.writer.missed
        missed[cause] = missed.get(cause, 0) + 1


def _message(error: BaseException) -> str:
    """An exception's text. Formatting any other argument could run user code or dispatch."""
    args = BaseException.__dict__["args"].__get__(error)
    if isinstance(error, OSError) and isinstance(error.strerror, str):
        return error.strerror[:2_000]
    if args and type(args[0]) is str:
        return args[0][:2_000]
    return ""
