"""Threads that the program starts: modes are thread-local, so each new thread enters them anew."""

from __future__ import annotations

import threading
from typing import Any

from dispatch_inspect.record import active, probe

_bootstrap = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]
_start = threading.Thread.start


def _started(self: threading.Thread) -> None:
    sessions = tuple(session for session in active.sessions() if session.follows_threads)
    if sessions:
        # kept outside the thread object, which belongs to the program
        _inherited[id(self)] = sessions
    try:
        _start(self)
    finally:
        _inherited.pop(id(self), None)


#: threads being started -> the recordings of the thread that starts them
_inherited: dict[int, tuple[Any, ...]] = {}


def _run(self: threading.Thread) -> None:
    sessions = _inherited.get(id(self), ())
    probe.name_thread(self.name)
    entered = []
    try:
        for session in sessions:
            if session.enter_modes():
                entered.append(session)
        _bootstrap(self)
    finally:
        for session in reversed(entered):
            session.leave_modes()


#: what stands in for the start of a thread. ``start`` returns only after the new thread has
#: reached its ``_bootstrap_inner``, so the entry made before is there to be read.
PATCHES = (
    (threading.Thread, "start", _started),
    (threading.Thread, "_bootstrap_inner", _run),
)
