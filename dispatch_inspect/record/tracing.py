"""trace(): the public context manager and decorator."""

from __future__ import annotations

import functools
import inspect
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from dispatch_inspect.errors import UsageError
from dispatch_inspect.reading import Trace
from dispatch_inspect.record import probe
from dispatch_inspect.record.filters import CaptureFilter
from dispatch_inspect.record.recorder import Recorder
from dispatch_inspect.record.session import Session
from dispatch_inspect.store.reader import StoredTrace, open_trace
from dispatch_inspect.store.writer import create_trace, launch_name

LAYERS = ("modules", "functions", "ops", "hops")
#: what is recorded unless chosen: what needs no compiler
DEFAULT_LAYERS = LAYERS[:3]
_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Options:
    """What ``trace`` was asked to record, checked."""

    layers: tuple[str, ...]
    stacks: bool
    max_events: int | None
    names: tuple[str, ...] | None
    modules: tuple[str, ...] | None
    every: int
    threads: bool
    children: bool


class Recording(Trace):
    """A trace while it is recorded and after."""

    def __init__(self, path: Path, session: Session) -> None:
        super().__init__(path)
        self._session = session

    def pause(self) -> None:
        """Records nothing until ``resume()``."""
        self._session.pause()

    def resume(self) -> None:
        """Records again after ``pause()``."""
        self._session.resume()

    def step(self) -> None:
        """Says that a step of the program ends: with ``every=n``, each n-th step is recorded."""
        self._session.step()

    def close(self) -> None:
        """Ends the recording; the trace can be read as before."""
        self._session.stop()
        self._stored = None

    @property
    def stored(self) -> StoredTrace:
        """Its columns and tables; while it is recorded, as they are now."""
        if self._session.is_over:
            return super().stored
        self._stored = open_trace(self.path)
        return self._stored


class trace:  # noqa: N801 - a function to its users, like contextlib.suppress
    """Records what the program does inside ``with trace() as t:``, or inside a decorated function.

    ``path`` is a directory to make, by custom ``NAME.dtrace``; without one the trace is temporary
    and goes with the object. ``layers`` chooses among "modules", "functions", "ops" and "hops"
    (every kernel the dispatcher enters; its probe is compiled at first use);
    ``stacks`` keeps the whole Python stack of each event instead of the user's line.
    ``max_events`` ends the recording after so many events. ``names`` and ``modules`` are glob
    patterns: only calls of such names, inside such modules, are recorded. ``every=n`` records
    each n-th step, as counted by ``t.step()``. ``threads`` follows threads the program starts,
    ``children`` forked processes, which get parts of their own in the same trace.
    Raises TraceExistsError unless ``overwrite``, TraceWriteError, and UsageError.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        layers: Sequence[str] = DEFAULT_LAYERS,
        stacks: bool = False,
        max_events: int | None = None,
        names: Sequence[str] | None = None,
        modules: Sequence[str] | None = None,
        every: int = 1,
        threads: bool = True,
        children: bool = True,
        overwrite: bool = False,
    ) -> None:
        self._path = None if path is None else Path(path)
        self._overwrite = overwrite
        self._options = Options(
            layers=_checked_layers(layers),
            stacks=stacks,
            max_events=_checked_count("max_events", max_events),
            names=_checked_patterns("names", names),
            modules=_checked_patterns("modules", modules),
            every=_checked_count("every", every) or 1,
            threads=threads,
            children=children,
        )
        self._open: list[Recording] = []

    def __enter__(self) -> Recording:
        recording = _record(self._path, self._overwrite, self._options)
        self._open.append(recording)
        recording._session.start()
        return recording

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open.pop().close()

    def __call__(self, function: _Function) -> _Function:
        """Decorates a function: each call of it is one recording.

        The first goes to ``path``, the next to ``NAME.2.dtrace``, ``NAME.3.dtrace`` and so on;
        the last one is ``function.trace``.
        """
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise UsageError(
                f"{function.__qualname__} is a generator: its callers run between its steps and "
                "would be recorded too",
                "use `with trace():` around the loop that consumes it",
            )
        calls = _Calls(self._path, self._overwrite, self._options)
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def wrapper(*args: Any, **kwargs: Any) -> Any:
                with calls as recording:
                    wrapper.trace = recording  # type: ignore[attr-defined]
                    return await function(*args, **kwargs)

        else:

            @functools.wraps(function)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                with calls as recording:
                    wrapper.trace = recording  # type: ignore[attr-defined]
                    return function(*args, **kwargs)

        wrapper.trace = None  # type: ignore[attr-defined]
        return wrapper  # type: ignore[return-value]


class _Calls:
    """Makes a recording for each call of a decorated function."""

    def __init__(self, path: Path | None, overwrite: bool, options: Options) -> None:
        self._path = path
        self._overwrite = overwrite
        self._options = options
        self._count = 0
        self._local = threading.local()

    def __enter__(self) -> Recording:
        self._count += 1
        path = self._path
        if path is not None and self._count > 1:
            path = path.with_name(f"{path.stem}.{self._count}{path.suffix}")
        recording = _record(path, self._overwrite, self._options)
        self._local.open = [*getattr(self._local, "open", ()), recording]
        recording._session.start()
        return recording

    def __exit__(self, *error: object) -> None:
        self._local.open.pop().close()


def _record(path: Path | None, overwrite: bool, options: Options) -> Recording:
    """Makes the trace and what records into it; nothing is recorded yet."""
    temporary = path is None
    if path is None:
        path = Path(tempfile.mkdtemp(prefix="dispatch_inspect-")) / "trace.dtrace"
    path = path.absolute()
    if "hops" in options.layers:
        # a probe that cannot be compiled is an error before anything is made
        probe.load()
    create_trace(path, overwrite=overwrite, run="" if temporary else launch_name())

    def make_recorder(parent_pid: int | None) -> Recorder:
        recorder = Recorder(
            path,
            layers=options.layers,
            stacks=options.stacks,
            max_events=options.max_events,
            threads=options.threads,
            names=options.names,
            gated=options.modules is not None,
            parent_pid=parent_pid,
        )
        if options.names is not None or options.modules is not None:
            recorder.filters = CaptureFilter(options.names, options.modules, recorder.names)
        return recorder

    session = Session(
        make_recorder,
        options.layers,
        every=options.every,
        follows_threads=options.threads,
        follows_forks=options.children,
    )
    recording = Recording(path, session)
    if temporary:
        weakref.finalize(recording, _remove, path.parent, os.getpid())
    return recording


def _remove(folder: Path, owner: int) -> None:
    """Removes a temporary trace, but not from a forked child."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def _checked_layers(layers: Sequence[str]) -> tuple[str, ...]:
    chosen = (layers,) if isinstance(layers, str) else tuple(layers)
    unknown = [layer for layer in chosen if layer not in LAYERS]
    if unknown or not chosen:
        got = ", ".join(repr(layer) for layer in unknown) or "none"
        hint = "layers are: " + ", ".join(LAYERS)
        raise UsageError(f"unknown layer: {got}" if unknown else "no layer was chosen", hint)
    return tuple(layer for layer in LAYERS if layer in chosen)


def _checked_count(name: str, value: int | None) -> int | None:
    if value is not None and (not isinstance(value, int) or value < 1):
        raise UsageError(f"{name} must be a whole number from 1, got {value!r}")
    return value


def _checked_patterns(name: str, patterns: Sequence[str] | None) -> tuple[str, ...] | None:
    if patterns is None:
        return None
    chosen = (patterns,) if isinstance(patterns, str) else tuple(patterns)
    for pattern in chosen:
        if not isinstance(pattern, str):
            raise UsageError(
                f"{name} must be glob patterns, got {type(pattern).__name__}",
                'for example names=["aten::mm*"] or modules=["Net.encoder.*"]',
            )
    return chosen
