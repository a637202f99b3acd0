"""Prints a trace, call by call, in the notation that tests assert.

--where takes a filter: terms beside each other must all hold, | is or, ! is not.

  aten::mm                  calls of aten::mm        key:CPU        went on to the CPU kernel
  module:layers.0.*         inside such modules      dtype:bf16     with such a tensor
  shape:[*,128]             with such a shape        dur>1ms        longer than that
  in:backward  has:aten::mm  inside a call, around a call           err  raised

Fields: name kind key module file thread device dtype shape stride mode depth dur self id err
alias in has.

example:
  dispatch-inspect tree run.dtrace --depth 3
  dispatch-inspect tree run.dtrace --where "in:backward dur>1ms"
"""

from __future__ import annotations

import argparse
import sys

from dispatch_inspect.errors import UsageError


def carry_out(options: argparse.Namespace) -> int:
    """Prints the tree and returns the exit code."""
    from dispatch_inspect import render
    from dispatch_inspect.cli.printing import print_line, print_notes
    from dispatch_inspect.reading import load

    if options.depth is not None and options.depth < 1:
        raise UsageError(f"--depth counts levels from 1, got {options.depth}")
    trace = load(options.trace)
    if options.json:
        for text in render.tree_json(trace.stored, options.where, options.depth):
            sys.stdout.write(text + "\n")
        sys.stdout.flush()
        return 0
    fold = not options.no_fold
    shown = render.tree(trace.stored, options.where, options.depth, fold, options.tracers)
    for line in shown:
        print_line(line)
    sys.stdout.flush()
    print_notes(trace)
    return 0
