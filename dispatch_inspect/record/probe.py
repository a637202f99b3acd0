"""The native recorder's Python face: every kernel the dispatcher enters, in every thread.

With it all layers write to the same lanes, tables and identities, so that a hop stands below the
operator, function and module it belongs to.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import torch

from dispatch_inspect import building
from dispatch_inspect.errors import UsageError
from dispatch_inspect.record import forks
from dispatch_inspect.store import layout
from dispatch_inspect.store.lane_writer import LaneWriter
from dispatch_inspect.store.records import TABLES, Lane, Process
from dispatch_inspect.store.table_writer import TableWriter
from dispatch_inspect.store.writer import TraceWriter

PART, MODULE = "probe", "dispatch_inspect_probe"
_LIMIT = -1


def load(quiet: bool = False) -> ModuleType:
    """The compiled probe. Raises UsageError when it cannot be compiled or does not fit."""
    probe = building.load(PART, MODULE, quiet=quiet)
    for columns, ours in (
        (layout.EVENT_COLUMNS, probe.EVENT_COLUMNS),
        (layout.OPERAND_COLUMNS, probe.OPERAND_COLUMNS),
    ):
        sizes = {name: struct.calcsize(code) for name, code in columns.items()}
        if list(sizes.items()) != list(ours.items()) or probe.CHUNK != layout.CHUNK:
            raise UsageError(
                "the compiled probe writes another format", "reinstall dispatch-inspect"
            )
    return probe


def available() -> bool:
    """Whether the probe can be used without compiling it.

    DISPATCH_INSPECT_PROBE=never records without it, hops excepted.
    """
    if os.environ.get("DISPATCH_INSPECT_PROBE") == "never":
        return False
    try:
        return building.is_built(PART, MODULE) and load() is not None
    except UsageError:
        return False


class ProbeLane:
    """One thread's events, written by the probe; a LaneWriter to those who record."""

    def __init__(self, native: Any) -> None:
        self.native = native
        self.begin = native.begin
        self.end = native.end
        self.fail = native.fail
        self.note = native.note
        self.unwind = native.unwind
        self.open = _Open(native)

    @property
    def count(self) -> int:
        """Events begun."""
        return cast(int, self.native.count)

    def read(self, name: str, row: int) -> int:
        """What was recorded of an event; 0 when it is not at hand any more."""
        return cast(int, self.native.read(_PLACES[name], row))


_PLACES = {name: place for place, name in enumerate(layout.EVENT_COLUMNS)}


class _Open:
    """A lane's open events: how many, and a way to forget some."""

    __slots__ = ("_native",)

    def __init__(self, native: Any) -> None:
        self._native = native

    def __len__(self) -> int:
        return len(self._native)

    def __delitem__(self, which: slice) -> None:
        self._native.drop(which.start)


class _ProbeTable(TableWriter):
    """A table whose lines the probe writes too, so that it counts them."""

    def __init__(self, path: Path, stop: Callable[[OSError], None], native: Any, name: str) -> None:
        super().__init__(path, stop)
        self._native = native
        self._name = name

    def _write(self, line: bytes) -> int:
        return cast(int, self._native.append(self._name, line))


class ProbeWriter(TraceWriter):
    """The part of a trace that one process writes, through the probe."""

    def __init__(
        self,
        path: Path,
        process: Process,
        *,
        max_events: int | None = None,
        child_pid: int | None = None,
        threads: bool = True,
        names: Sequence[str] | None = None,
        gated: bool = False,
    ) -> None:
        self.probe = load()
        self._options = (
            max_events if max_events is not None else 1 << 62,
            threads,
            tuple(names) if names is not None else None,
            gated,
        )
        super().__init__(path, process, max_events=max_events, child_pid=child_pid)

    def _make_tables(self) -> dict[str, TableWriter]:
        self.native = self.probe.Recorder(str(self.directory), *self._options)
        return {
            name: _ProbeTable(self.directory / f"{name}.jsonl", self._stop, self.native, name)
            for name in TABLES
        }

    @property
    def event_count(self) -> int:
        """Events recorded by this process so far."""
        return cast(int, self.native.event_count)

    def lane(self, lane: Lane, thread: threading.Thread | None = None) -> LaneWriter | None:
        """The calling thread's lane, or None when recording is over."""
        del thread
        self.probe.name_thread(lane.thread)
        native = self.native.lane() if self.ended is None else None
        if native is None:
            self._end_with_probe()
            return None
        return cast(LaneWriter, ProbeLane(native))

    def close(self, reason: str = "closed", message: str = "") -> None:
        """Ends recording, if it has not ended, and gives back unused disk space."""
        self._end_with_probe()
        super().close(reason, message)

    def _close_lanes(self) -> None:
        self.native.close()
        self.missed.update(self.native.missed())

    def _end_with_probe(self) -> None:
        """Learns from the probe why it has ended, if it has."""
        ended = self.native.ended
        if ended == _LIMIT:
            self._end("limit", "max_events was reached")
        elif ended:
            self._stop(OSError(ended, os.strerror(ended)))

    def disown(self) -> None:
        """Lets go of everything without touching the disk: what a forked child does."""
        super().disown()
        self.native.disown()


class ProbeTensorReader:
    """Turns tensors into numbers for the operand columns, without running anybody's Python."""

    def __init__(self, native: Any) -> None:
        self._native = native
        self._read = native.read

    def read(self, tensor: torch.Tensor, operands: list[Any]) -> None:
        """Appends descriptor, tensor, storage and version numbers of a tensor."""
        operands.append(self._read(tensor))

    @property
    def saw_complex(self) -> bool:
        """Whether any tensor read so far was complex: views may have conjugate bits since."""
        return cast(bool, self._native.saw_complex)

    read_guarded = read


def _answered(question: Callable[..., Any]) -> Callable[..., Any]:
    """A question about one operator's dispatch table, answered from PyTorch's own."""

    def ask(name: Any, *rest: Any) -> Any:
        probe = _recording_probe()
        if probe is None:
            return question(name, *rest)
        operator = name if isinstance(name, str) else getattr(name, "name", lambda: "")()
        return probe.restored(operator, question, name, *rest)

    ask.__name__ = question.__name__
    return ask


def _answered_for_all(question: Callable[..., Any]) -> Callable[..., Any]:
    def ask(*rest: Any) -> Any:
        probe = _recording_probe()
        return question(*rest) if probe is None else probe.restored("", question, *rest)

    ask.__name__ = question.__name__
    return ask


def _recording_probe() -> Any:
    for session in forks.followed():
        writer = session.recorder.writer
        if "hops" in session.layers and isinstance(writer, ProbeWriter):
            return writer.probe
    return None


def look_again() -> None:
    """Stands in front of kernels that were registered since."""
    probe = _recording_probe()
    if probe is not None:
        probe.rescan("")


def name_thread(name: str) -> None:
    """Names the calling thread for the lane that it gets when it dispatches."""
    probe = _recording_probe()
    if probe is not None:
        probe.name_thread(name)


#: questions that PyTorch answers from the tables the probe stands in
PATCHES = (
    *(
        (torch._C, name, _answered(vars(torch._C)[name]))
        for name in (
            "_dispatch_has_computed_kernel_for_dispatch_key",
            "_dispatch_get_computed_kernel_for_dispatch_key",
            "_dispatch_check_invariants",
        )
        if name in vars(torch._C)
    ),
    (
        torch._C,
        "_dispatch_check_all_invariants",
        _answered_for_all(torch._C._dispatch_check_all_invariants),
    ),
)
