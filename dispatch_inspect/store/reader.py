"""Opens a trace: every process's tables and every thread's lane, joined into one."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
from pydantic import ValidationError

from dispatch_inspect.errors import (
    DamagedTraceError,
    ForeignTraceError,
    TraceNotFoundError,
    TraceReadError,
    TraceVersionError,
)
from dispatch_inspect.store import layout, order
from dispatch_inspect.store.event import Event
from dispatch_inspect.store.lane_reader import LaneReader
from dispatch_inspect.store.records import POINTERS, TABLES, End, Format, Process
from dispatch_inspect.store.table_reader import TableReader

Array = np.ndarray[Any, Any]


class ProcessReader:
    """One process's part of a trace."""

    def __init__(self, directory: Path, note: Any) -> None:
        self.directory = directory
        found = _record(directory / layout.PROCESS_FILE, Process)
        if found is None:
            note(f"{directory.name}/{layout.PROCESS_FILE} cannot be read; keys have no names")
        self.process = found or Process(pid=0)
        self.end = _record(directory / layout.END_FILE, End)
        self.lanes = [LaneReader(path, note) for path in _directories(directory, "lane=")]
        self.tables = {
            name: TableReader(directory / f"{name}.jsonl", kind, note)
            for name, kind in TABLES.items()
        }

    @property
    def is_running(self) -> bool:
        """Whether the process is still recording, as far as can be told on this machine."""
        if self.end is not None or self.process.hostname != socket.gethostname():
            return False
        try:
            os.kill(self.process.pid, 0)
        except (ProcessLookupError, OverflowError):
            return False
        except OSError:
            return True
        return self.process.pid > 0


class JoinedTable(Sequence[Any]):
    """The same table of several processes, one after another."""

    def __init__(self, parts: Sequence[TableReader]) -> None:
        self._parts = parts
        self.offsets = np.cumsum([0, *(len(part) for part in parts)]).tolist()

    def __len__(self) -> int:
        return int(self.offsets[-1])

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        """The record with this id; None when it cannot be read."""
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(index)
        for place, part in enumerate(self._parts):
            if index < self.offsets[place + 1]:
                return part[index - self.offsets[place]]
        raise IndexError(index)

    def get(self, pointer: int) -> Any:
        """The record a column points at (id + 1), or None."""
        return self[pointer - 1] if 0 < pointer <= len(self) else None


class StoredTrace:
    """What is in a trace directory, as numpy columns and records; see layout for the columns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._notes: list[str] = []
        self._columns: dict[str, Array] = {}
        self._tables: dict[str, JoinedTable] = {}
        self._load()

    def _load(self) -> None:
        directories = _directories(self.path, "rank=")
        self.processes = [ProcessReader(directory, self._note) for directory in directories]
        if not self.processes:
            raise DamagedTraceError(
                f"{self.path} holds no process's part: nothing was recorded, or it was removed"
            )
        self._parts = [
            (place, lane) for place, process in enumerate(self.processes) for lane in process.lanes
        ]
        counts = [lane.count for _, lane in self._parts]
        self._bases = np.cumsum([0, *counts])
        self._operand_bases = np.cumsum([0, *(lane.operand_count for _, lane in self._parts)])
        self._order = order.joined_order(
            [lane.column("depth") for _, lane in self._parts],
            [self._clock(place, lane) for place, lane in self._parts],
        )
        self._inverse: Array | None = None

    def refresh(self) -> None:
        """Looks again at a trace that is still being written; events read before stay valid."""
        self._notes.clear()
        self._columns.clear()
        self._tables.clear()
        self._load()

    def _note(self, text: str) -> None:
        if text not in self._notes:
            self._notes.append(text)

    @property
    def process(self) -> Process:
        """Who recorded: the first process."""
        return self.processes[0].process

    @property
    def lanes(self) -> list[Any]:
        """The threads, in the order of column("lane")."""
        return [lane.lane for _, lane in self._parts]

    @property
    def is_recording(self) -> bool:
        """Whether a process is still writing to the trace."""
        return any(process.is_running for process in self.processes)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know of the trace as a whole: damage, early ends, missed calls."""
        found: list[str] = []
        for process in self.processes:
            who = f" ({process.directory.name})" if len(self.processes) > 1 else ""
            found.extend(note + who for note in _end_notes(process))
        return (*found, *self._notes)

    def __len__(self) -> int:
        return int(self._bases[-1])

    def column(self, name: str) -> Array:
        """One number an event, in global order; pointers are ids + 1 into table()."""
        found = self._columns.get(name)
        if found is None:
            found = self._columns[name] = self._make_column(name)
        return found

    def operand_column(self, name: str) -> Array:
        """One number an operand; ``operand_event`` holds global event rows."""
        found = self._columns.get(name)
        if found is None:
            found = self._columns[name] = self._make_operand_column(name)
        return found

    def table(self, name: str) -> JoinedTable:
        """The records of a table of every process, by id."""
        found = self._tables.get(name)
        if found is None:
            found = JoinedTable([process.tables[name] for process in self.processes])
            self._tables[name] = found
        return found

    @property
    def events(self) -> EventSequence:
        """All events in the order in which they began, each thread's calls kept together."""
        return EventSequence(self, range(len(self)))

    def event(self, row: int) -> Event:
        """The event with this id."""
        return Event(self, row)

    def part_of(self, row: int) -> tuple[ProcessReader, LaneReader]:
        """The process and the lane that an event is from."""
        place = int(np.searchsorted(self._bases, self._source_row(row), "right")) - 1
        process, lane = self._parts[place]
        return self.processes[process], lane

    def subtree_end(self, row: int) -> int:
        """The id of the first event after ``row`` that is not below it."""
        if "subtree_end" not in self._columns and self._order is None:
            # one event of a long trace: not worth a pass over all
            end = int(self._single().column("subtree_end")[row])
            if row < end <= len(self):
                return end
            return order.subtree_end(self.column("depth"), row)
        return int(self.column("subtree_end")[row])

    def _single(self) -> LaneReader:
        return max((lane for _, lane in self._parts), key=lambda lane: lane.count)

    def _source_row(self, row: int) -> int:
        return row if self._order is None else int(self._order[row])

    def _clock(self, place: int, lane: LaneReader) -> Array:
        """Begin times on one clock: each process's own is placed by its start in real time."""
        process = self.processes[place].process
        first = self.processes[0].process
        shift = (process.started_unix_ns - process.started_ns) - (
            first.started_unix_ns - first.started_ns
        )
        begins = lane.column("begin_ns")
        if process.hostname == first.hostname or not 0 < abs(shift) < 1 << 62:
            return begins
        return (begins.astype(np.int64) + shift).clip(0)

    def _join(self, parts: list[Array]) -> Array:
        if len(parts) == 1:
            return parts[0]
        joined = np.concatenate(parts) if parts else np.zeros(0, np.int64)
        return joined if self._order is None else joined[self._order]

    def _global_rows(self, rows: Array) -> Array:
        """Rows of the lanes laid one after another, as global rows."""
        if self._order is None:
            return rows
        if self._inverse is None:
            self._inverse = np.empty_like(self._order)
            self._inverse[self._order] = np.arange(len(self._order))
        return self._inverse[rows]

    def _make_column(self, name: str) -> Array:
        if name == "lane":
            return self._join(
                [
                    np.full(lane.count, place, np.int32)
                    for place, (_, lane) in enumerate(self._parts)
                ]
            )
        if name == "subtree_end":
            return self._make_ends()
        if name == "parent":
            return self._make_parents()
        parts = [self._pointed(name, place, lane.column(name)) for place, lane in self._parts]
        if name in ("input_at", "output_at"):
            parts = [
                _operand_rows(part, lane.operand_count, base)
                for part, (_, lane), base in zip(
                    parts, self._parts, self._operand_bases.tolist(), strict=False
                )
            ]
        return self._join(parts)

    def _make_ends(self) -> Array:
        parts = []
        for base, (_, lane) in zip(self._bases.tolist(), self._parts, strict=False):
            ends = order.mended_ends(lane.column("depth"), lane.column("subtree_end"))
            if self._order is not None:
                # a subtree stays together, so its length is all that matters
                rows = np.arange(len(ends), dtype=np.int64)
                ends = np.minimum(self._global_rows(rows + base) + (ends - rows), len(self))
            parts.append(ends)
        return self._join(parts)

    def _make_parents(self) -> Array:
        parts = []
        for base, (_, lane) in zip(self._bases.tolist(), self._parts, strict=False):
            parents = lane.column("parent")
            rows = np.arange(len(parents), dtype=np.int64)
            if not (parents <= rows).all():
                parents = np.where(parents <= rows, parents, 0)
            if self._order is not None:
                at = self._global_rows(np.maximum(parents.astype(np.int64) - 1, 0) + base)
                parents = np.where(parents > 0, at + 1, 0)
            parts.append(parents)
        return self._join(parts)

    def _pointed(self, name: str, place: int, values: Array) -> Array:
        """Pointers of one process as pointers into the joined tables."""
        table = POINTERS.get(name)
        if table is None or place == 0:
            return values
        offset = self.table(table).offsets[place]
        return np.where(values > 0, values.astype(np.int64) + offset, 0)

    def _make_operand_column(self, name: str) -> Array:
        parts = []
        for number, (place, lane) in enumerate(self._parts):
            values = lane.operand_column(name)
            if name == "operand_event":
                inside = values < lane.count
                rows = np.where(inside, values, 0) if not inside.all() else values
                if self._order is not None:
                    rows = self._global_rows(rows.astype(np.int64) + int(self._bases[number]))
                parts.append(rows)
            elif name in ("operand_tensor", "operand_storage") and place:
                # numbers of different processes name different things
                parts.append(np.where(values > 0, values.astype(np.int64) + (place << 40), 0))
            else:
                parts.append(self._pointed(name, place, values))
        return parts[0] if len(parts) == 1 else np.concatenate(parts or [np.zeros(0, np.int64)])


class EventSequence(Sequence[Event]):
    """Events by position; each is made when asked for."""

    def __init__(self, trace: StoredTrace, rows: Any) -> None:
        self._trace = trace
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> EventSequence: ...
    def __getitem__(self, index: int | slice) -> Event | EventSequence:
        """The event at a position, or a shorter sequence."""
        if isinstance(index, slice):
            return EventSequence(self._trace, self._rows[index])
        return Event(self._trace, int(self._rows[index]))

    def __iter__(self) -> Iterator[Event]:
        return (Event(self._trace, int(row)) for row in self._rows)

    def __repr__(self) -> str:
        return f"<{len(self):,} events>"


def open_trace(path: str | os.PathLike[str]) -> StoredTrace:
    """Opens the trace at ``path``.

    Raises TraceNotFoundError, ForeignTraceError, TraceVersionError, DamagedTraceError or
    TraceReadError (no permission), and nothing else, here or from anything read later.
    """
    path = Path(path)
    try:
        _check_format(path)
        return StoredTrace(path)
    except PermissionError as error:
        raise TraceReadError(f"no permission to read {error.filename or path}") from None
    except OSError as error:
        raise TraceReadError(f"cannot read {path}: {error.strerror or error}") from None


def _check_format(path: Path) -> None:
    if not path.exists():
        near = sorted(one.name for one in path.parent.glob("*.dtrace"))[:5]
        raise TraceNotFoundError(
            f"there is no {path}", f"traces there: {', '.join(near)}" if near else ""
        )
    if not path.is_dir():
        raise ForeignTraceError(f"{path} is a file; a trace is a directory NAME.dtrace")
    try:
        text = (path / layout.TRACE_FILE).read_bytes()
    except FileNotFoundError:
        raise ForeignTraceError(f"{path} is not a trace: it has no {layout.TRACE_FILE}") from None
    except IsADirectoryError:
        raise ForeignTraceError(f"{path / layout.TRACE_FILE} is a directory") from None
    try:
        found = Format.model_validate_json(text)
    except ValidationError:
        raise ForeignTraceError(
            f"{path} is not a trace: its {layout.TRACE_FILE} is not this tool's"
        ) from None
    if found.format != layout.FORMAT:
        raise ForeignTraceError(f"{path} is not a trace of this tool but {found.format[:80]!r}")
    if found.version > layout.VERSION:
        raise TraceVersionError(
            f"{path} has trace format {found.version}, this is {layout.VERSION}",
            "upgrade: pip install -U dispatch-inspect",
        )
    if found.version < 1:
        raise ForeignTraceError(f"{path} has trace format {found.version}, which never was")


def _operand_rows(rows: Array, count: int, base: int) -> Array:
    """Rows of a lane's operands as rows of all; one beyond the end stands for none."""
    if len(rows) and int(rows.max()) > count:
        rows = np.minimum(rows, count)
    return rows if not base else rows.astype(np.int64) + base


def _directories(path: Path, prefix: str) -> list[Path]:
    return sorted(one for one in path.iterdir() if one.name.startswith(prefix) and one.is_dir())


def _record(path: Path, kind: type[Any]) -> Any:
    try:
        return kind.model_validate_json(path.read_bytes())
    except PermissionError:
        raise TraceReadError(f"no permission to read {path}") from None
    except (OSError, ValidationError):
        return None


def _end_notes(part: ProcessReader) -> list[str]:
    end: End | None = part.end
    if end is None:
        if part.is_running:
            return ["still recording"]
        return ["the recording ended early: its process died; every event that had begun is here"]
    found = []
    if end.reason == "limit":
        found.append("recording ended early: max_events was reached")
    elif end.reason != "closed":
        found.append(f"recording ended early: {end.message or end.reason}")
    found.extend(f"{count:,} not recorded: {cause}" for cause, count in end.missed.items())
    return found
