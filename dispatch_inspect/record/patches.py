"""What PyTorch offers no hook for: functions replaced while any recording is on, and put back."""

from __future__ import annotations

import threading
from typing import Any

_lock = threading.Lock()
_users = 0
_originals: list[tuple[Any, str, Any]] = []


def _all() -> tuple[tuple[Any, str, Any], ...]:
    # imported late: these modules are the users of recordings, not their parts
    from dispatch_inspect.record import jitting, modules, probe, regions, registrations, threads

    parts = (modules, regions, threads, jitting, registrations, probe)
    return tuple(patch for part in parts for patch in part.PATCHES)


def install() -> None:
    """Puts the replacements in place; counts its users."""
    global _users
    with _lock:
        from dispatch_inspect.record import compiling

        _users += 1
        if _users > 1:
            return
        for owner, name, replacement in _all():
            # through __dict__: a staticmethod must come back as one
            _originals.append((owner, name, vars(owner)[name]))
            setattr(owner, name, replacement)
        compiling.install()


def uninstall() -> None:
    """Puts the originals back when the last user has gone.

    A function that somebody else has replaced meanwhile is left alone: theirs calls ours, and
    ours passes through when nothing is recorded.
    """
    global _users
    with _lock:
        from dispatch_inspect.record import compiling

        _users -= 1
        if _users:
            return
        replacements = {(id(owner), name): one for owner, name, one in _all()}
        while _originals:
            owner, name, original = _originals.pop()
            if vars(owner).get(name) is replacements[id(owner), name]:
                setattr(owner, name, original)
        compiling.uninstall()
