"""Columns that grow on disk and are written through memory: one chunk of rows is mapped at a time.

Disk space for a chunk is allocated before it is mapped, so a full disk is an ``OSError`` here and
never a fatal signal at a later write. Older chunks are unmapped, so memory does not grow with the
trace; the few late writes to them (the end of a long call) go through the file.

No file stays open: hundreds of threads must not use up the program's descriptors, and a program
that closes descriptors it does not know must not turn our writes into writes to its own files.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from dispatch_inspect.store.layout import CHUNK
from dispatch_inspect.store.mapping import map_file


def _allocate(descriptor: int, offset: int, length: int) -> None:
    """Reserves disk space, filled with zeros; raises OSError when there is none."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, offset, length)
            return
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise
    zeros = bytes(min(length, 1 << 16))
    written = 0
    while written < length:
        written += os.pwrite(descriptor, zeros[: length - written], offset + written)


class Chunk:
    """The mapped rows ``begin`` to ``begin + CHUNK`` of a group of columns."""

    __slots__ = ("begin", "columns")

    def __init__(self, begin: int, columns: dict[str, memoryview[int]]) -> None:
        self.begin = begin
        self.columns = columns


class ColumnFiles:
    """The files of a group of columns which have the same number of rows."""

    def __init__(self, directory: Path, types: Mapping[str, str]) -> None:
        self._types = dict(types)
        self._paths = {name: os.path.join(directory, f"{name}.bin") for name in types}

    def map_chunk(self, begin: int) -> Chunk:
        """Allocates and maps the chunk that starts at row ``begin`` (a multiple of CHUNK)."""
        return Chunk(begin, {name: self._map(name, begin) for name in self._types})

    def _map(self, name: str, begin: int) -> memoryview[int]:
        code = self._types[name]
        size = struct.calcsize(code)
        offset, length = begin * size, CHUNK * size
        descriptor = os.open(self._paths[name], os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            _allocate(descriptor, offset, length)
            mapped = map_file(descriptor, offset, length, writable=True)
        finally:
            os.close(descriptor)
        view: Any = memoryview(mapped)
        return cast("memoryview[int]", view.cast(code))

    def write(self, name: str, row: int, value: int) -> None:
        """Writes one number of an allocated row through the file."""
        data = struct.pack("<" + self._types[name], value)
        descriptor = os.open(self._paths[name], os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(descriptor, data, row * len(data))
        finally:
            os.close(descriptor)

    def cut(self, rows: int) -> None:
        """Gives back the disk space after ``rows`` rows."""
        for name, code in self._types.items():
            os.truncate(self._paths[name], rows * struct.calcsize(code))
