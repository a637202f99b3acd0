"""What is recorded at all: names and modules chosen before the program runs."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dispatch_inspect.record.names import NameReader
    from dispatch_inspect.record.thread import ThreadRecorder


class CaptureFilter:
    """Chooses events by glob patterns over their names and over the modules around them.

    ``names`` match a function's or operator's name ("aten::mm*", "torch.nn.functional.*");
    ``modules`` match the qualified name of a running module, with or without the class of its
    root ("Net.a.*", "a.*"); what happens inside such a module is recorded.
    """

    def __init__(
        self, names: Sequence[str] | None, modules: Sequence[str] | None, reader: NameReader
    ) -> None:
        self._names = None if names is None else tuple(names)
        self._modules = None if modules is None else tuple(modules)
        self._reader = reader
        self._wanted: dict[int, bool] = {}

    def wants(self, thread: ThreadRecorder, name: int = 0) -> bool:
        """Whether an event of this name (0: a module) is recorded where the thread is now."""
        if name and self._names is not None and not self._wants_name(name, self._names):
            return False
        patterns = self._modules
        return patterns is None or any(
            fnmatchcase(text, pattern)
            for running in reversed(thread.modules)
            for text in (running.path, running.name)
            for pattern in patterns
        )

    def _wants_name(self, name: int, patterns: Sequence[str]) -> bool:
        found = self._wanted.get(name)
        if found is None:
            text = self._reader.texts[name]
            found = self._wanted[name] = any(fnmatchcase(text, one) for one in patterns)
        return found
