"""Where in the program a call was made: the user's own line, or the whole Python stack."""

from __future__ import annotations

import linecache
import os
from types import CodeType, FrameType

import torch

from dispatch_inspect.store.records import Frame, Stack
from dispatch_inspect.store.table_writer import MEMORY, TableWriter

#: lines kept before and after the line of a frame
CONTEXT = 3

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class SourceReader:
    """Turns frames into numbers of the ``stacks`` table."""

    def __init__(self, frames: TableWriter, stacks: TableWriter, whole: bool) -> None:
        self._frames = frames
        self._stacks = stacks
        #: whether the whole stack is kept
        self.whole = whole
        self._sites: dict[tuple[int, int, int], int] = {}
        #: address of a code object -> whether it is torch's or ours (or only ours), and the
        #: code itself, so that the address stays its own; hashing code objects is slow
        self._foreign: dict[int, tuple[bool, CodeType]] = {}
        self.read = self._read_whole if whole else self._read_user_line

    def is_foreign(self, code: CodeType) -> bool:
        """Whether code is torch's or the tracer's own."""
        return (self._foreign.get(id(code)) or self._learn(code, (_TORCH, _OURS)))[0]

    def _read_user_line(self, frame: FrameType | None) -> int:
        """The innermost line that is neither torch's nor ours."""
        foreign = self._foreign
        while frame is not None:
            code = frame.f_code
            known = foreign.get(id(code)) or self._learn(code, (_TORCH, _OURS))
            if not known[0]:
                found = self._sites.get((id(code), frame.f_lasti, 0))
                return found if found is not None else self._learn_site(code, frame, 0)
            frame = frame.f_back
        return 0

    def _read_whole(self, frame: FrameType | None) -> int:
        """The whole stack without the tracer's own frames."""
        frames = []
        while frame is not None:
            code = frame.f_code
            known = self._foreign.get(id(code)) or self._learn(code, (_OURS,))
            if not known[0]:
                frames.append(frame)
            frame = frame.f_back
        caller = 0
        for one in reversed(frames):
            found = self._sites.get((id(one.f_code), one.f_lasti, caller))
            caller = found if found is not None else self._learn_site(one.f_code, one, caller)
        return caller

    def _learn(self, code: CodeType, places: tuple[str, ...]) -> tuple[bool, CodeType]:
        if len(self._foreign) >= MEMORY:
            # both at once: sites are known by the addresses of these
            self._foreign.clear()
            self._sites.clear()
        known = (os.path.abspath(code.co_filename).startswith(places), code)
        self._foreign[id(code)] = known
        return known

    def _learn_site(self, code: CodeType, frame: FrameType, caller: int) -> int:
        line = frame.f_lineno or 0
        function = getattr(code, "co_qualname", code.co_name)
        number = self._frames.intern(
            (code.co_filename, line, function), lambda: _frame(code, line, function, frame)
        )
        site = self._stacks.intern(
            (number, caller), lambda: Stack(frame=number - 1, caller=caller - 1 if caller else None)
        )
        if len(self._sites) >= MEMORY:
            self._sites.clear()
        self._sites[(id(code), frame.f_lasti, caller)] = site
        return site


def _frame(code: CodeType, line: int, function: str, frame: FrameType) -> Frame:
    first = max(1, line - CONTEXT)
    lines = linecache.getlines(code.co_filename, frame.f_globals)
    return Frame(
        file=code.co_filename,
        line=line,
        function=function,
        first=first,
        source=tuple(one.rstrip("\n")[:500] for one in lines[first - 1 : line + CONTEXT]),
    )
