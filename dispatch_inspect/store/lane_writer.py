"""One thread's events, written as they begin and end.

This is the narrow door every layer records through: ``begin`` returns a row, ``end`` or ``fail``
closes it. Only the lane's own thread may call them; a signal handler on that thread may do so at
any moment in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from dispatch_inspect.store.layout import (
    CHUNK,
    EVENT_COLUMNS,
    LANE_FILE,
    OPERAND_COLUMNS,
    RAISED,
    RETURNED,
)
from dispatch_inspect.store.mapped import Chunk, ColumnFiles
from dispatch_inspect.store.records import Lane

#: what ``begin`` returns when recording has stopped
NO_ROW = -1
#: the numbers that describe a tensor of a call: descriptor, tensor, storage, version
Operand = tuple[int, int, int, int]
_DEEPEST = 65_535


class LaneWriter:
    """Writes the events of one thread.

    ``reserve(rows)`` says how many of the next rows may be used (0: recording is over);
    ``stop(error)`` is told when the disk refuses more.
    """

    def __init__(
        self,
        directory: Path,
        lane: Lane,
        reserve: Callable[[int], int],
        stop: Callable[[OSError], None],
    ) -> None:
        directory.mkdir()
        (directory / LANE_FILE).write_text(lane.model_dump_json() + "\n")
        self._reserve = reserve
        self._stop = stop
        self._event_files = ColumnFiles(directory, EVENT_COLUMNS)
        self._operand_files = ColumnFiles(directory, OPERAND_COLUMNS)
        self._closed = False
        self.count = 0
        self.operand_count = 0
        #: open events, outermost first: (row, depth, module)
        self.open: list[tuple[int, int, int]] = []
        #: events that ended while an event they contain was still open
        self._ended_early: set[int] = set()
        self._events = _EventRows(self._event_files.map_chunk(0))
        self._operands = _OperandRows(self._operand_files.map_chunk(0))

    def begin(
        self,
        kind: int,
        now: int,
        name: int,
        arguments: int,
        operands: Sequence[Operand],
        state: int,
        stack: int,
        sequence: int,
        module: int = 0,
        node: int = 0,
        node_sequence: int = 0,
    ) -> int:
        """Records that an event began at ``now`` (ns) and returns its row, or NO_ROW.

        The numbers are what layout.EVENT_COLUMNS says (ids + 1). ``module`` 0 takes that of
        the enclosing event.
        """
        row = self.count
        rows = self._events
        at = row - rows.begin
        if at >= rows.limit:
            found = self._next_event_rows(row)
            if found is None:
                return NO_ROW
            rows = found
            row = self.count
            at = row - rows.begin
        self.count = row + 1
        enclosing = self.open
        if enclosing:
            parent, depth, inherited = enclosing[-1]
            depth = depth + 1 if depth < _DEEPEST else depth
            rows.parent[at] = parent + 1
            rows.depth[at] = depth
            module = module or inherited
        else:
            depth = 0
        rows.name[at] = name
        if module:
            rows.module[at] = module
        rows.arguments[at] = arguments
        if operands:
            rows.input_at[at] = self._write_operands(row, operands)
        rows.state[at] = state
        rows.stack[at] = stack
        if sequence:
            rows.sequence[at] = sequence
        if node:
            rows.node[at] = node
            rows.node_sequence[at] = node_sequence
        rows.begin_ns[at] = now
        rows.kind[at] = kind
        enclosing.append((row, depth, module))
        return row

    def end(self, row: int, now: int, result: int, operands: Sequence[Operand]) -> None:
        """Records that an event returned at ``now``, and what."""
        rows = self._events
        at = row - rows.begin
        if at < 0:
            self._late_end(row, now, RETURNED, result, operands, 0)
            return
        if operands:
            rows.output_at[at] = self._write_operands(row, operands)
        rows.result[at] = result
        rows.end_ns[at] = now
        rows.outcome[at] = RETURNED
        enclosing = self.open
        if enclosing and enclosing[-1][0] == row and not self._ended_early:
            rows.subtree_end[at] = self.count
            enclosing.pop()
        else:
            self._leave(row)

    def fail(self, row: int, now: int, error: int) -> None:
        """Records that an event was left by an exception at ``now``."""
        if row == NO_ROW:
            return
        self._late_end(row, now, RAISED, 0, (), error)

    def note(self, row: int, note: int) -> None:
        """Attaches a note to an event."""
        if row == NO_ROW or self._closed:
            return
        self._put("note", row, note)

    def read(self, name: str, row: int) -> int:
        """What was recorded of an event; 0 when it is not at hand any more."""
        rows = self._events
        at = row - rows.begin
        return int(getattr(rows, name)[at]) if 0 <= at < CHUNK and not self._closed else 0

    def unwind(self, depth: int, now: int, error: int) -> None:
        """Closes, as left by an exception, what is open above the ``depth`` outermost events."""
        while len(self.open) > depth:
            self.fail(self.open[-1][0], now, error)

    def _late_end(
        self, row: int, now: int, outcome: int, result: int, operands: Sequence[Operand], error: int
    ) -> None:
        if row == NO_ROW:
            return
        if not self._closed:
            put = self._put
            if operands:
                put("output_at", row, self._write_operands(row, operands))
            if result:
                put("result", row, result)
            if error:
                put("error", row, error)
            put("end_ns", row, now)
            put("outcome", row, outcome)
        self._leave(row)

    def _put(self, name: str, row: int, value: int) -> None:
        """Writes one number of a row, mapped or not."""
        rows = self._events
        at = row - rows.begin
        if at >= 0:
            getattr(rows, name)[at] = value
        else:
            self._event_files.write(name, row, value)

    def _leave(self, row: int) -> None:
        """Takes an ended event off the stack; it keeps what is still open inside it."""
        for position in range(len(self.open) - 1, -1, -1):
            if self.open[position][0] == row:
                break
        else:
            return
        self._ended_early.add(row)
        while self.open and self.open[-1][0] in self._ended_early:
            ended = self.open.pop()[0]
            self._ended_early.discard(ended)
            if not self._closed:
                self._put("subtree_end", ended, self.count)

    def _write_operands(self, row: int, operands: Sequence[Operand]) -> int:
        """Appends operands of the event ``row`` and returns the row of the first."""
        first = self.operand_count
        number = len(operands)
        self.operand_count = first + number
        rows = self._operands
        at = first - rows.begin
        if at < 0 or at + number > CHUNK:
            return self._write_operands_across(row, first, operands)
        for descriptor, tensor, storage, version in operands:
            rows.event[at] = row
            rows.descriptor[at] = descriptor
            rows.tensor[at] = tensor
            rows.storage[at] = storage
            rows.version[at] = version
            at += 1
        return first

    def _write_operands_across(self, row: int, first: int, operands: Sequence[Operand]) -> int:
        """Writes operands that do not fit into the mapped chunk."""
        if self._closed:
            return 0
        try:
            for place, operand in enumerate(operands, start=first):
                if place >= self._operands.begin + CHUNK:
                    self._operands = _OperandRows(
                        self._operand_files.map_chunk(self._operands.begin + CHUNK)
                    )
                for name, value in zip(OPERAND_COLUMNS, (row, *operand), strict=True):
                    self._operand_files.write(name, place, value)
        except OSError as error:
            self._stop(error)
        return first

    def _next_event_rows(self, row: int) -> _EventRows | None:
        """Makes room for ``row``, or says that recording is over."""
        if self._closed:
            return None
        rows = self._events
        if row - rows.begin >= CHUNK:
            try:
                rows = _EventRows(self._event_files.map_chunk(rows.begin + CHUNK))
            except OSError as error:
                self._stop(error)
                return None
        granted = self._reserve(CHUNK - rows.limit)
        rows.limit += granted
        self._events = rows
        return rows if granted else None

    def close(self, cut: bool) -> None:
        """Takes no more events; ``cut`` gives back unused disk space.

        Only for the own or a finished thread may it be cut: another could be about to write.
        """
        self._closed = True
        self._events.limit = 0
        # later operands find no room and are left out
        self._operands.begin = self.operand_count + 1
        if cut:
            self._event_files.cut(self.count)
            self._operand_files.cut(self.operand_count)

    def disown(self) -> None:
        """Lets go of the mapped rows in a forked child, where they are still the parent's.

        Calls in progress keep this writer until they return: no row fits any more.
        """
        self._closed = True
        self._events = _EventRows(Chunk(1 << 62, {}))
        self._events.limit = -(1 << 62)
        self._operands.begin = 1 << 62


class _EventRows:
    """The columns of a mapped chunk as attributes: what the hot path reads fastest."""

    __slots__ = ("begin", "limit", *EVENT_COLUMNS)

    begin: int
    #: rows that may be used, counted from ``begin``
    limit: int
    kind: memoryview[int]
    outcome: memoryview[int]
    depth: memoryview[int]
    parent: memoryview[int]
    subtree_end: memoryview[int]
    begin_ns: memoryview[int]
    end_ns: memoryview[int]
    name: memoryview[int]
    module: memoryview[int]
    arguments: memoryview[int]
    result: memoryview[int]
    input_at: memoryview[int]
    output_at: memoryview[int]
    state: memoryview[int]
    stack: memoryview[int]
    sequence: memoryview[int]
    node: memoryview[int]
    node_sequence: memoryview[int]
    error: memoryview[int]
    note: memoryview[int]

    def __init__(self, chunk: Chunk) -> None:
        self.begin = chunk.begin
        self.limit = 0
        for name, column in chunk.columns.items():
            setattr(self, name, column)


class _OperandRows:
    __slots__ = ("begin", "descriptor", "event", "storage", "tensor", "version")

    def __init__(self, chunk: Chunk) -> None:
        self.begin = chunk.begin
        self.event = chunk.columns["operand_event"]
        self.descriptor = chunk.columns["operand_descriptor"]
        self.tensor = chunk.columns["operand_tensor"]
        self.storage = chunk.columns["operand_storage"]
        self.version = chunk.columns["operand_version"]
