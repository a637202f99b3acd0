"""Forked children inherit modes, patches and mapped files: none may write to the parent's trace."""

from __future__ import annotations

import os
import sys
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dispatch_inspect.record.session import Session

_sessions: list[Session] = []
_registered = False


def follow(session: Session) -> None:
    """Tells ``session`` when it finds itself in a forked child."""
    global _registered
    _sessions.append(session)
    if not _registered:
        os.register_at_fork(after_in_child=_in_child)
        _registered = True


def forget(session: Session) -> None:
    """Ends what ``follow`` began."""
    if session in _sessions:
        _sessions.remove(session)


def followed() -> tuple[Session, ...]:
    """The recordings that are on in this process."""
    return tuple(_sessions)


def _in_child() -> None:
    for session in tuple(_sessions):
        session.after_fork(os.getppid())
        util = sys.modules.get("multiprocessing.util")
        if util is not None:
            # multiprocessing leaves a child through os._exit: close its part before
            util.register_after_fork(session, _close_at_exit)


def _close_at_exit(session: Session) -> None:
    from multiprocessing import util

    reference = weakref.ref(session)

    def close() -> None:
        live = reference()
        if live is not None:
            live.stop()

    util.Finalize(None, close, exitpriority=-100)
