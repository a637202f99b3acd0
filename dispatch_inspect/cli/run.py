"""Runs a program as python would, and records what it dispatches.

The program sees its own sys.argv, sys.path and __main__; its output, exit code and tracebacks are
its own. The trace survives whatever ends the program.

example:
  dispatch-inspect run train.py --epochs 1
  dispatch-inspect run -o step.dtrace --layers ops -m mypackage.train
  dispatch-inspect run -c "import torch; torch.ones(2) + 1"
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path


def carry_out(options: argparse.Namespace) -> int:
    """Runs and records the program; returns its exit code."""
    from dispatch_inspect.record.requirement import require_torch

    require_torch()
    from dispatch_inspect.record.script import Program, check, run

    program = Program(options.how, options.program, tuple(options.arguments))
    check(program)
    layers = tuple(one.strip() for one in options.layers.split(",") if one.strip())
    output = Path(options.output) if options.output else Path(_default_name(program.title))
    return run(
        program,
        output,
        layers=layers,
        stacks=options.stacks,
        max_events=options.max_events,
        children=options.children == "record",
        overwrite=options.force,
        say=lambda text: print(text, file=sys.stderr, flush=True),
    )


def _default_name(title: str) -> str:
    return f"{title}.{os.getpid()}.dtrace"
