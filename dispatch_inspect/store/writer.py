"""Writes one process's part of a trace: its tables, and a lane a thread."""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
import threading
import time
from pathlib import Path

from dispatch_inspect.errors import TraceExistsError, TraceWriteError
from dispatch_inspect.store import layout
from dispatch_inspect.store.lane_writer import LaneWriter
from dispatch_inspect.store.records import TABLES, End, Format, Lane, Process
from dispatch_inspect.store.table_writer import TableWriter


class TraceWriter:
    """The part of a trace that one process writes.

    ``max_events`` ends recording after so many events. Nothing here raises once recording has
    begun: when the disk refuses more, ``ended`` says so and ``begin`` of every lane returns NO_ROW.
    """

    def __init__(
        self,
        path: Path,
        process: Process,
        *,
        max_events: int | None = None,
        child_pid: int | None = None,
    ) -> None:
        self.path = path
        self.directory = path / layout.process_directory(process.rank, child_pid)
        self._lock = threading.Lock()
        self._free = max_events if max_events is not None else 1 << 62
        self._numbers = itertools.count()
        self._lanes: list[tuple[threading.Thread | None, LaneWriter]] = []
        #: why recording ended, once it has
        self.ended: End | None = None
        self.missed: dict[str, int] = {}
        self.directory.mkdir()
        (self.directory / layout.PROCESS_FILE).write_text(process.model_dump_json() + "\n")
        self.tables = self._make_tables()

    def _make_tables(self) -> dict[str, TableWriter]:
        return {name: TableWriter(self.directory / f"{name}.jsonl", self._stop) for name in TABLES}

    @property
    def event_count(self) -> int:
        """Events recorded by this process so far."""
        return sum(lane.count for _, lane in self._lanes)

    def lane(self, lane: Lane, thread: threading.Thread | None = None) -> LaneWriter | None:
        """Opens a lane for a thread, or returns None when recording is over."""
        with self._lock:
            if self.ended is not None:
                return None
            directory = self.directory / layout.lane_directory(next(self._numbers))
            writer = None
            try:
                writer = LaneWriter(directory, lane, self._reserve, self._stop)
                self._lanes.append((thread, writer))
            except OSError as error:
                self._stop(error)
            finally:
                if writer is None:
                    # half made: the disk is full, or an interrupt came
                    shutil.rmtree(directory, ignore_errors=True)
            return writer

    def close(self, reason: str = "closed", message: str = "") -> None:
        """Ends recording, if it has not ended, and gives back unused disk space."""
        with self._lock:
            end = self.ended or _end(reason, message)
            self.ended = end
            self._close_lanes()
            try:
                text = end.model_copy(update={"missed": dict(self.missed)}).model_dump_json()
                (self.directory / layout.END_FILE).write_text(text + "\n")
            except OSError:
                # without it the trace reads as ended early, which is true
                return

    def _close_lanes(self) -> None:
        for thread, lane in self._lanes:
            mine = thread is None or thread is threading.current_thread()
            try:
                lane.close(cut=mine or not thread.is_alive())  # type: ignore[union-attr]
            except OSError:
                # the space is not given back; the events are all there
                continue

    def disown(self) -> None:
        """Lets go of everything without touching the disk: what a forked child does."""
        self._lock = threading.Lock()
        self.ended = self.ended or _end("closed", "")
        for _, lane in self._lanes:
            lane.disown()
        for table in self.tables.values():
            table.disown()

    def _reserve(self, rows: int) -> int:
        """Grants rows of the limit to a lane."""
        if self.ended is not None:
            return 0
        with self._lock:
            # small grants, so that a lane does not hold what another could use
            granted = min(rows, self._free, 256 if self._free < 1 << 40 else rows)
            self._free -= granted
            if not granted and rows:
                self._end("limit", "max_events was reached")
            return granted

    def _end(self, reason: str, message: str) -> None:
        if self.ended is None:
            self.ended = _end(reason, message)

    def _stop(self, error: OSError) -> None:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        self._end("disk", "no space left on the disk" if full else f"cannot write: {error}")


def _end(reason: str, message: str) -> End:
    return End.model_validate(
        {"ended_ns": time.perf_counter_ns(), "reason": reason, "message": message}
    )


def create_trace(path: Path, *, overwrite: bool = False, run: str = "") -> None:
    """Makes the trace directory.

    ``run`` names a launch of several processes: one that finds a trace of the same launch joins
    it. Raises TraceExistsError when the path is taken and TraceWriteError when it cannot be made.
    """
    text = json.dumps({"format": layout.FORMAT, "version": layout.VERSION, "run": run}) + "\n"
    if path.exists() or path.is_symlink():
        found = read_format(path)
        if run and found is not None and found.run == run:
            return
        if not overwrite:
            raise TraceExistsError(
                f"{path} exists already",
                "choose another path, or overwrite it: overwrite=True (--force)",
            )
        if found is None and not (path.is_dir() and not any(path.iterdir())):
            raise TraceExistsError(
                f"{path} exists and is not a trace, so it is not overwritten",
                "choose another path, or remove it yourself",
            )
        try:
            shutil.rmtree(path)
        except OSError as error:
            raise TraceWriteError(f"cannot overwrite {path}: {error.strerror}") from None
    try:
        path.mkdir()
        (path / layout.TRACE_FILE).write_text(text)
    except FileExistsError:
        raise TraceExistsError(
            f"{path} was made by another process just now", "choose another path"
        ) from None
    except FileNotFoundError:
        raise TraceWriteError(
            f"cannot record to {path}: there is no folder {path.parent}", "make it first"
        ) from None
    except OSError as error:
        raise TraceWriteError(
            f"cannot record to {path}: {error.strerror or error}", "choose a path you may write to"
        ) from None


def read_format(path: Path) -> Format | None:
    """What ``trace.json`` in ``path`` says, or None when it is no trace of this tool."""
    try:
        found = Format.model_validate_json((path / layout.TRACE_FILE).read_bytes())
    except (OSError, ValueError):
        return None
    return found if found.format == layout.FORMAT else None


def launch_name() -> str:
    """What tells apart launches of several processes (torchrun), or "" for a single process."""
    if int(os.environ.get("WORLD_SIZE") or 1) < 2:
        return ""
    names = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT")
    return ":".join(os.environ.get(name, "") for name in names)
