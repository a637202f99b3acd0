"""Lines on a terminal or in a file: colour only for a terminal, and never the only carrier."""

from __future__ import annotations

import functools
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dispatch_inspect.reading import Trace
    from dispatch_inspect.render import Line


@functools.cache
def _console() -> Any:
    """A rich console when stdout is a terminal that may be coloured, else None."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return None
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True)


def print_line(line: Line) -> None:
    """Prints one line of a tree."""
    console = _console()
    if console is None:
        sys.stdout.write(f"{line}\n")
        return
    from rich.text import Text

    name, gap, tensors = line.call.partition("  ")
    text = Text("  " * line.depth)
    style = "red" if line.is_error else "dim" if line.is_context else ""
    text.append(name, f"bold {style}".strip())
    text.append(gap + tensors, style)
    if line.comment:
        text.append(f"  # {line.comment}", "dim")
    console.print(text)


def print_notes(trace: Trace) -> None:
    """Says on stderr what must be known of the trace as a whole."""
    for note in trace.notes:
        print(f"note: {note}", file=sys.stderr)
