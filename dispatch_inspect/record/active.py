"""Which recordings a thread takes part in.

Modes carry this themselves, but the patches of modules and regions run outside any handler. A
thread of the autograd engine inherits dispatch modes only: there the mode stack tells.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch._C import _get_dispatch_stack_at, _len_torch_dispatch_stack

if TYPE_CHECKING:
    from dispatch_inspect.record.session import Session

_local = threading.local()


def sessions() -> tuple[Session, ...]:
    """The recordings of this thread, outermost first."""
    found: tuple[Session, ...] = getattr(_local, "sessions", ())
    if found or not _len_torch_dispatch_stack():
        return found
    return _inherited()


def _inherited() -> tuple[Session, ...]:
    from dispatch_inspect.record.calls import OperatorMode

    modes = (_get_dispatch_stack_at(place) for place in range(_len_torch_dispatch_stack()))
    return tuple(mode.session for mode in modes if isinstance(mode, OperatorMode))


@contextmanager
def nobody() -> Iterator[None]:
    """Runs a block as if the thread took part in no recording."""
    found = getattr(_local, "sessions", ())
    _local.sessions = ()
    try:
        yield
    finally:
        _local.sessions = found


def enter(session: Session) -> None:
    """Adds a recording to this thread."""
    _local.sessions = (*getattr(_local, "sessions", ()), session)


def leave(session: Session) -> None:
    """Takes a recording from this thread, wherever it stands."""
    _local.sessions = tuple(one for one in getattr(_local, "sessions", ()) if one is not session)
