"""Interning: what is not a number is written once, at first sight, and known by its id after."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from pathlib import Path

from pydantic import BaseModel

#: records a table remembers; then it forgets all and writes them again when they come back
MEMORY = 16_384


class TableWriter:
    """One JSON Lines file; ``ids`` maps what was seen to its id + 1 (0 means none)."""

    def __init__(self, path: Path, stop: Callable[[OSError], None]) -> None:
        self._path = path
        self._stop = stop
        self._lock = threading.RLock()
        self._count = 0
        #: whether an interrupt may have come between writing a line and counting it
        self._unsure = False
        self._disowned = False
        #: read directly by the hot path
        self.ids: dict[Hashable, int] = {}
        path.touch(exist_ok=False)

    def intern(self, key: Hashable, make: Callable[[], BaseModel]) -> int:
        """Returns the id + 1 of what ``key`` stands for, writing ``make()`` at first sight.

        0 when it could not be written: the disk is full.
        """
        found = self.ids.get(key)
        if found is not None:
            return found
        line = (make().model_dump_json(exclude_defaults=True) + "\n").encode("utf-8", "replace")
        with self._lock:
            found = self.ids.get(key)
            if found is not None:
                return found
            if self._disowned:
                return 0
            number = self._write(line)
            if not number:
                return 0
            if len(self.ids) >= MEMORY:
                self.ids.clear()
            self.ids[key] = number
            return number

    def disown(self) -> None:
        """Writes nothing more: the file is the parent process's."""
        self._lock = threading.RLock()
        self._disowned = True

    def _write(self, line: bytes) -> int:
        """Appends a line and returns its number from 1; 0 when the disk refuses."""
        try:
            if self._unsure:
                self._count_again()
            self._unsure = True
            self._append(line)
            self._count = number = self._count + 1
            self._unsure = False
        except OSError as error:
            self._stop(error)
            return 0
        return number

    def _count_again(self) -> None:
        """Ids are line numbers: counts the lines that are there, and takes back half a one."""
        written = self._path.read_bytes()
        whole = written.rfind(b"\n") + 1
        if whole < len(written):
            os.truncate(self._path, whole)
        self._count = written.count(b"\n")

    def _append(self, line: bytes) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            written = os.write(descriptor, line)
            if written != len(line):
                # a full disk cut the line: take it back, so that ids stay line numbers
                os.truncate(self._path, os.fstat(descriptor).st_size - written)
                raise OSError(28, os.strerror(28), str(self._path))
        finally:
            os.close(descriptor)
