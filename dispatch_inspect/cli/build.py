"""Compiles the probe that records hops against the installed PyTorch, and keeps it.

It is compiled once for each PyTorch and Python, at its first use or by this verb. It needs a C++
compiler and the headers of Python. DISPATCH_INSPECT_CACHE names the folder where it is kept.
Once compiled it makes recording of all layers faster; DISPATCH_INSPECT_PROBE=never goes without.

example:
  dispatch-inspect build
"""

from __future__ import annotations

import argparse


def carry_out(options: argparse.Namespace) -> int:
    """Builds, prints where the result is, and returns the exit code."""
    del options
    from dispatch_inspect.record.requirement import require_torch

    require_torch()
    from dispatch_inspect import building
    from dispatch_inspect.record import probe

    path = building.build(probe.PART, probe.MODULE)
    probe.load()
    print(path)
    return 0
