"""The columns of one lane, mapped as they are and mended where they are damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from dispatch_inspect.errors import TraceReadError
from dispatch_inspect.store.layout import EVENT_COLUMNS, LANE_FILE, OPERAND_COLUMNS
from dispatch_inspect.store.mapping import map_for_reading
from dispatch_inspect.store.records import Lane

Array = np.ndarray[Any, Any]

_TYPES = {"B": "<u1", "H": "<u2", "I": "<u4", "Q": "<u8"}
#: an event is what these columns say; the others may be missing
_ESSENTIAL = ("kind", "depth", "name", "begin_ns")
_BLOCK = 1 << 16


class LaneReader:
    """One thread's events. ``note`` is told what damage was found."""

    def __init__(self, directory: Path, note: Callable[[str], None]) -> None:
        self.directory = directory
        self._note = note
        self._columns: dict[str, Array] = {}
        self.lane = self._read_lane()
        self.count = self._count_events()
        rows = [self._rows(name, code) for name, code in OPERAND_COLUMNS.items()]
        self.operand_count = min(rows) if self.count else 0

    def column(self, name: str) -> Array:
        """One number an event; zeros where the file ends early."""
        return self._column(name, EVENT_COLUMNS[name], self.count)

    def operand_column(self, name: str) -> Array:
        """One number an operand.

        Operands of events that are not there (recorded since, or damaged) describe nothing.
        """
        column = self._column(name, OPERAND_COLUMNS[name], self.operand_count)
        if name == "operand_descriptor":
            stray = self.operand_column("operand_event") >= self.count
            return np.where(stray, 0, column) if stray.any() else column
        return column

    def _column(self, name: str, code: str, rows: int) -> Array:
        found = self._columns.get(name)
        if found is None:
            found = self._columns[name] = self._load(name, code, rows)
        return found

    def _load(self, name: str, code: str, rows: int) -> Array:
        there = min(rows, self._rows(name, code))
        mapped = self._map(name, code, there)
        if there == rows:
            return mapped
        self._note(
            f"{self._place(name)} ends after {there:,} of {rows:,} rows; the rest reads as zeros"
        )
        padded = np.zeros(rows, _TYPES[code])
        padded[:there] = mapped
        return padded

    def _map(self, name: str, code: str, rows: int) -> Array:
        if not rows:
            return np.zeros(0, _TYPES[code])
        try:
            kind = np.dtype(_TYPES[code])
            mapped = map_for_reading(self._path(name), rows * kind.itemsize)
            column = np.frombuffer(mapped, kind, rows)
            column.flags.writeable = False
            return column
        except PermissionError:
            raise TraceReadError(f"no permission to read {self._path(name)}") from None
        except (OSError, ValueError):
            # cut between looking and mapping: a trace that is being closed or removed
            return np.zeros(rows, _TYPES[code])

    def _rows(self, name: str, code: str) -> int:
        """Rows that a column's file holds; a part of a number at its end does not count."""
        try:
            return self._path(name).stat().st_size // np.dtype(_TYPES[code]).itemsize
        except OSError:
            return 0

    def _count_events(self) -> int:
        rows = {name: self._rows(name, EVENT_COLUMNS[name]) for name in _ESSENTIAL}
        shortest = min(rows, key=lambda name: rows[name])
        kinds = self._map("kind", "B", rows["kind"])
        count = _last_nonzero(kinds) + 1
        if rows[shortest] < count:
            self._note(
                f"{self._place(shortest)} ends after {rows[shortest]:,} of {count:,} events; "
                "the trace ends there"
            )
            return rows[shortest]
        return count

    def _read_lane(self) -> Lane:
        try:
            return Lane.model_validate_json((self.directory / LANE_FILE).read_bytes())
        except PermissionError:
            raise TraceReadError(f"no permission to read {self.directory / LANE_FILE}") from None
        except (OSError, ValidationError):
            self._note(f"{self._place(LANE_FILE)} cannot be read; its thread has no name")
            return Lane(thread=self.directory.name)

    def _path(self, name: str) -> Path:
        return self.directory / f"{name}.bin"

    def _place(self, name: str) -> str:
        return f"{self.directory.parent.name}/{self.directory.name}/{name}"


def _last_nonzero(values: Array) -> int:
    """The index of the last number that is not 0, or -1; looks from the end."""
    for end in range(len(values), 0, -_BLOCK):
        begin = max(0, end - _BLOCK)
        found = np.flatnonzero(values[begin:end])
        if len(found):
            return begin + int(found[-1])
    return -1
