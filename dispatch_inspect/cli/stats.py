"""Sums a trace up: how often, how long (self: without what was called), with which dtypes.

Times include what recording cost inside a call; compare them with each other, not with a run
without recording.

--blind shows the calls that no dispatch mode saw, of a trace with the layers ops and hops: those
made inside kernels, on threads without the mode, where modes were disabled.

example:
  dispatch-inspect stats run.dtrace --by module --sort total
  dispatch-inspect stats run.dtrace --where "in:backward kind:op" --csv
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dispatch_inspect.reading import Trace


def _print_blind(trace: Trace, as_json: bool) -> int:
    from dispatch_inspect import render
    from dispatch_inspect.cli.printing import print_notes
    from dispatch_inspect.query.blind import blind_spots

    rows = blind_spots(trace.stored)
    lines = [render.stats_json(rows)] if as_json else render.blind(rows)
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()
    print_notes(trace)
    return 0


def carry_out(options: argparse.Namespace) -> int:
    """Prints the statistics and returns the exit code."""
    from dispatch_inspect import render
    from dispatch_inspect.cli.printing import print_notes
    from dispatch_inspect.reading import load

    trace = load(options.trace)
    if options.blind:
        return _print_blind(trace, options.json)
    rows = trace.stats(options.by, options.where, options.sort, options.tracers)
    if options.json:
        sys.stdout.write(render.stats_json(rows) + "\n")
    elif options.csv:
        sys.stdout.write(render.stats_csv(rows))
    else:
        for text in render.stats(rows, options.by):
            sys.stdout.write(text + "\n")
        if not rows and options.where:
            sys.stdout.write(f"# {render.nearest(trace.stored, options.where)}\n")
    sys.stdout.flush()
    print_notes(trace)
    return 0
