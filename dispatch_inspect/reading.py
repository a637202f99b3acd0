"""Trace: what a recorded trace answers, joining the store, the filter language and the printer."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np

from dispatch_inspect import render
from dispatch_inspect.errors import TraceExistsError, TraceWriteError
from dispatch_inspect.query.evaluate import select
from dispatch_inspect.query.statistics import Row, statistics
from dispatch_inspect.store.event import Event
from dispatch_inspect.store.layout import KIND_CODES
from dispatch_inspect.store.reader import EventSequence, StoredTrace, open_trace


class Trace:
    """A recorded trace.

    ``events`` is a lazy sequence in the order in which the events began; ``where`` filters it,
    ``tree`` prints it, ``stats`` sums it up.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._stored: StoredTrace | None = None

    @property
    def path(self) -> Path:
        """The directory that holds it."""
        return self._path

    @property
    def stored(self) -> StoredTrace:
        """Its columns and tables; opened when first asked for."""
        if self._stored is None:
            self._stored = open_trace(self._path)
        return self._stored

    def __len__(self) -> int:
        return len(self.stored)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<trace {self._path.name}: {len(self):,} events>"

    @property
    def events(self) -> EventSequence:
        """All events."""
        return self.stored.events

    def event(self, number: int) -> Event:
        """The event with this id."""
        return self.stored.event(number)

    @property
    def notes(self) -> tuple[str, ...]:
        """What must be known of the trace as a whole: damage, an early end, calls not recorded."""
        return self.stored.notes

    def names(self, kind: str | None = None) -> list[str]:
        """The names of all events, or of those of a kind, in order."""
        stored = self.stored
        codes = stored.column("name")
        if kind is not None:
            codes = codes[stored.column("kind") == KIND_CODES.get(kind, 255)]
        table = stored.table("names")
        texts = {
            code: record.name if (record := table.get(code)) else "?"
            for code in np.unique(codes).tolist()
        }
        return [texts[code] for code in codes.tolist()]

    def where(self, text: str) -> EventSequence:
        """The events that match a filter ("key:CPU dur>1ms !op:aten::empty*").

        Raises FilterError.
        """
        return EventSequence(self.stored, np.flatnonzero(select(self.stored, text)))

    def tree(
        self,
        depth: int | None = None,
        where: str | None = None,
        fold: bool = True,
        tracers: bool = False,
    ) -> str:
        """The calls, indented, one line each; see notation. Raises FilterError.

        ``tracers`` shows the hops, too, that are there only because the tracer's own modes are on.
        """
        return "\n".join(map(str, render.tree(self.stored, where, depth, fold, tracers)))

    def stats(
        self,
        by: str = "name",
        where: str | None = None,
        sort: str = "self_ns",
        tracers: bool = False,
    ) -> list[Row]:
        """Calls and times by name, key, module, dtype or file. Raises UsageError, FilterError.

        ``tracers`` as for ``tree``.
        """
        return statistics(self.stored, by, where, sort, tracers)

    def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Copies the trace to ``path``. Raises TraceExistsError and TraceWriteError."""
        target = Path(path)
        if target.exists():
            if not overwrite:
                raise TraceExistsError(
                    f"{target} exists already", "or overwrite it: overwrite=True"
                )
            if target.resolve() == self._path.resolve():
                return
            open_trace(target)
            shutil.rmtree(target)
        try:
            shutil.copytree(self._path, target)
        except OSError as error:
            raise TraceWriteError(f"cannot save to {target}: {error}") from None


def load(path: str | os.PathLike[str]) -> Trace:
    """Opens the trace at ``path``.

    Raises TraceReadError: TraceNotFoundError, ForeignTraceError, TraceVersionError,
    DamagedTraceError.
    """
    trace = Trace(path)
    trace.stored  # noqa: B018 - opens it, so that errors come here
    return trace
