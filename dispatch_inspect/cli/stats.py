"""Sums a trace up: how often, how long (self: without what was called), with which dtypes.

Times include what recording cost inside a call; compare them with each other, not with a run
without recording.

example:
  dispatch-inspect stats run.dtrace --by module --sort total
  dispatch-inspect stats run.dtrace --where "in:backward kind:op" --csv
"""

from __future__ import annotations

import argparse
import sys


def carry_out(options: argparse.Namespace) -> int:
    """Prints the statistics and returns the exit code."""
    from dispatch_inspect import render
    from dispatch_inspect.cli.printing import print_notes
    from dispatch_inspect.reading import load

    trace = load(options.trace)
    rows = trace.stats(options.by, options.where, options.sort)
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
