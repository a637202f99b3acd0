"""The command line: parse, call the library, map errors to exit codes.

Exit codes: 0 fine, 1 a difference or failed expectation, 2 usage, 3 unreadable trace,
130 interrupted; ``run`` passes the program's own code through. stdout is data, stderr talks.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from dispatch_inspect.cli.arguments import parse
from dispatch_inspect.errors import DispatchInspectError


def main(argv: Sequence[str] | None = None) -> int:
    """Runs ``dispatch-inspect`` and returns its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        options = parse(arguments)
        return int(options.verb(options))
    except DispatchInspectError as error:
        return complain(error)
    except BrokenPipeError:
        # the reader has seen enough: nothing more can be written, not even by the interpreter
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        if arguments[:1] == ["run"]:
            # the program's, which dies of it as it would under python
            raise
        print("dispatch-inspect: interrupted", file=sys.stderr)
        return 130


def complain(error: DispatchInspectError) -> int:
    """Says on stderr what is wrong and what to do, and returns the exit code."""
    print(f"dispatch-inspect: error: {error.message}", file=sys.stderr)
    if error.hint:
        print(error.hint, file=sys.stderr)
    return error.exit_code
