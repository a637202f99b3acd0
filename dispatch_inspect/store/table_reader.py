"""A table of records, read line by line and only when asked for."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
from pydantic import TypeAdapter, ValidationError

from dispatch_inspect.errors import TraceReadError
from dispatch_inspect.store.mapping import map_for_reading

#: parsed records kept
_CACHE = 65_536


class TableReader(Sequence[Any]):
    """The records of one table of one process; a line that cannot be read is None.

    ``note`` is told, once, what was found.
    """

    def __init__(self, path: Path, kind: Any, note: Callable[[str], None]) -> None:
        self._path = path
        self._adapter: TypeAdapter[Any] = TypeAdapter(kind)
        self._note = note
        self._data, self._ends = _lines(path, note)
        self._cache: dict[int, Any] = {}
        self._noted = False

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        """The record with this id, or None when its line cannot be read."""
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(index)
        if index in self._cache:
            return self._cache[index]
        record = self._parse(index)
        if len(self._cache) >= _CACHE:
            self._cache.clear()
        self._cache[index] = record
        return record

    def _parse(self, index: int) -> Any:
        begin = int(self._ends[index - 1]) + 1 if index else 0
        line = self._data[begin : int(self._ends[index])]
        try:
            return self._adapter.validate_json(line)
        except ValidationError as error:
            if not self._noted:
                self._noted = True
                what = error.errors(include_url=False, include_input=False)[0]["msg"]
                self._note(
                    f"{self._path.name}, line {index + 1} cannot be read ({what}); "
                    "what points there is left out"
                )
            return None


def _lines(path: Path, note: Callable[[str], None]) -> tuple[bytes | mmap.mmap, Any]:
    """The bytes of a file and where its lines end."""
    empty: tuple[bytes, Any] = b"", np.zeros(0, np.int64)
    try:
        size = path.stat().st_size
        if not size:
            return empty
        data = map_for_reading(path, size)
    except FileNotFoundError:
        note(f"{path.name} is missing; what points there is left out")
        return empty
    except PermissionError:
        raise TraceReadError(f"no permission to read {path}") from None
    except (OSError, ValueError) as error:
        note(f"{path.name} cannot be read ({error}); what points there is left out")
        return empty
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 0x0A)
    if not len(ends) or ends[-1] != size - 1:
        ends = np.append(ends, size)
    return data, ends
