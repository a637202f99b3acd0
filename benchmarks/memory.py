"""How much a process grows while it records millions of events (Linux).

    python benchmarks/memory.py [--events N]

"same" repeats one call; "changing" has a new scalar and a new shape at each call, so that most of
what it records was not seen before.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

import dispatch_inspect as di


def resident() -> dict[str, float]:
    """MB resident, by kind of page."""
    found = {}
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("VmRSS", "RssAnon", "RssFile", "RssShmem"):
            found[name] = int(value.split()[0]) / 1024
    return found


def same(number: int) -> None:
    del number
    torch.add(A, A)


def changing(number: int) -> None:
    torch.add(A[: number % 4096], number)


A = torch.ones(4096)
CALLS: dict[str, Callable[[int], None]] = {"same": same, "changing": changing}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--events", type=int, default=5_000_000)
    parser.add_argument("calls", nargs="*", default=["same", "changing"])
    options = parser.parse_args()
    for name in options.calls:
        call = CALLS[name]
        with tempfile.TemporaryDirectory() as folder, di.trace(Path(folder) / "t.dtrace") as trace:
            lane = trace._session.thread()
            for number in range(5_000):
                call(number)
            before = resident()
            number = 5_000
            while lane.lane.count < options.events:
                call(number)
                number += 1
            after = resident()
            grown = {kind: after[kind] - before[kind] for kind in after}
        text = ", ".join(f"{kind} {value:+.1f}" for kind, value in grown.items())
        print(f"{name:<10}{options.events:,} events: {text} MB")


if __name__ == "__main__":
    main()
