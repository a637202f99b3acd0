"""Runs someone's program as ``python`` would, and records it.

The program gets a ``__main__`` module of its own, so that pickling, multiprocessing and
``if __name__ == "__main__"`` work; its exit code and tracebacks are its own. The trace is closed
at the very end, after the program's threads and exit handlers.
"""

from __future__ import annotations

import atexit
import io
import os
import runpy
import sys
import time
import types
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path

from dispatch_inspect.errors import UsageError
from dispatch_inspect.record.overhead import slow_down
from dispatch_inspect.record.tracebacks import without_ours
from dispatch_inspect.record.tracing import Recording, trace


@dataclass(frozen=True)
class Program:
    """A program as python takes it: a script's path, or a name after -m, or code after -c."""

    #: "", "-m" or "-c"
    how: str
    target: str
    arguments: tuple[str, ...]

    @property
    def title(self) -> str:
        """A short name for it, fit for a file name."""
        if self.how == "-c":
            return "code"
        if self.how == "-m":
            return self.target.split(".")[-1]
        return Path(self.target).stem or "script"


def check(program: Program) -> None:
    """Raises UsageError for a script that is not there, before anything is recorded."""
    if program.how:
        return
    path = Path(program.target)
    if not path.exists():
        raise UsageError(f"there is no script {program.target}", f"looked in {Path.cwd()}")
    if path.is_dir() and not (path / "__main__.py").exists():
        raise UsageError(f"{program.target} is a folder without a __main__.py")


def run(
    program: Program,
    output: Path,
    *,
    layers: tuple[str, ...],
    stacks: bool,
    max_events: int | None,
    children: bool,
    overwrite: bool,
    say: Callable[[str], None],
) -> int:
    """Runs and records a program; returns its exit code, or lets its SystemExit pass.

    ``say`` is told where it is recorded, and at the end how much.
    """
    tracing = trace(
        output,
        layers=layers,
        stacks=stacks,
        max_events=max_events,
        children=children,
        overwrite=overwrite,
    )
    owner = os.getpid()
    recording = tracing.__enter__()
    say(f"dispatch-inspect: recording to {output}")
    started = time.perf_counter()

    def finish() -> None:
        wall = time.perf_counter() - started
        tracing.__exit__(None, None, None)
        if os.getpid() == owner:
            say(_summary(recording, output, wall, layers, stacks))

    # handlers that the program registers run before this one, and its threads end before those
    atexit.register(finish)
    try:
        _execute(program)
    except SystemExit:
        raise
    except BaseException as error:
        recording.pause()
        shown = without_ours(error)
        sys.excepthook(type(shown), shown, shown.__traceback__)
        if isinstance(error, KeyboardInterrupt):
            # the interpreter ends as after any interrupt; what was to be said has been said
            sys.excepthook = lambda *_: None
            raise
        return 1
    return 0


def _execute(program: Program) -> None:
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    if sys.version_info < (3, 14):
        main.__annotations__ = {}
    sys.modules["__main__"] = main
    if program.how == "-m":
        sys.argv = ["-m", *program.arguments]
        sys.path[0] = os.getcwd()
        runpy._run_module_as_main(program.target, alter_argv=True)  # type: ignore[attr-defined]
    elif program.how == "-c":
        sys.argv = ["-c", *program.arguments]
        sys.path[0] = ""
        exec(compile(program.target, "<string>", "exec", dont_inherit=True), main.__dict__)
    else:
        sys.argv = [program.target, *program.arguments]
        if os.path.isdir(program.target) or zipfile.is_zipfile(program.target):
            sys.path[0] = program.target
            runpy._run_module_as_main("__main__", alter_argv=False)  # type: ignore[attr-defined]
        else:
            _execute_file(program.target, main)


def _execute_file(path: str, main: types.ModuleType) -> None:
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    main.__file__ = os.path.abspath(path)
    main.__loader__ = SourceFileLoader("__main__", path)
    main.__dict__["__cached__"] = None
    with io.open_code(os.path.abspath(path)) as file:
        source = file.read()
    exec(compile(source, main.__file__, "exec", dont_inherit=True), main.__dict__)


def _summary(
    recording: Recording, output: Path, wall: float, layers: tuple[str, ...], stacks: bool
) -> str:
    """What was recorded, what it cost, and what to type next."""
    count = len(recording)
    size = sum(one.stat().st_size for one in recording.path.rglob("*") if one.is_file())
    lines = [f"dispatch-inspect: {count:,} events, {_size(size)} in {output}"]
    cost = slow_down(count, wall, layers, stacks)
    if cost:
        lines[0] += f"; {cost}"
    lines.extend(_noted_calls(recording))
    lines.extend(f"  note: {note}" for note in recording.notes)
    if not count:
        lines.append("  nothing was recorded: did the program call PyTorch?")
    lines.append(f"  next: dispatch-inspect tree {output} --depth 3")
    return "\n".join(lines)


def _noted_calls(recording: Recording) -> list[str]:
    """How many calls recording changed, by the rule of the note at each."""
    stored = recording.stored
    numbers = Counter(stored.column("note").tolist())
    rules: Counter[str] = Counter()
    for number, calls in numbers.items():
        note = stored.table("notes").get(number)
        if note is not None:
            rules[note.rule] += calls
    if not rules:
        return []
    text = ", ".join(f"{calls:,} {rule}" for rule, calls in rules.most_common())
    return [f"  calls that differ for being recorded, with a note at each: {text}"]


def _size(size: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
