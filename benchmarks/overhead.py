"""What recording costs, beside its peers, in one run: microseconds for each call.

(a) 2,000 additions of 4-element tensors; (b) a training step of a 4-layer transformer (d=64).
Every subject is measured in turn, round after round, and its fastest round counts, so that a
machine that drifts drifts for all. Ratios are to the floor: an empty TorchDispatchMode and an
empty TorchFunctionMode, below which no recorder made of modes can be.

A profiler makes its events readable when it ends, a trace as it is recorded. So two subjects are
also measured with their end: what each further step adds to the time of the whole block.

    python benchmarks/overhead.py [--rounds N] [--markdown]
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import platform
from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.profiler import profile
from torch.utils._debug_mode import DebugMode
from torch.utils._python_dispatch import TorchDispatchMode

import dispatch_inspect as di
from dispatch_inspect.record import probe

ADDITIONS = 2_000


class EmptyDispatchMode(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class EmptyFunctionMode(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def both_empty() -> Any:
    with EmptyFunctionMode(), EmptyDispatchMode():
        yield


def recording(*layers: str, stacks: bool = False) -> Callable[[], Any]:
    return lambda: di.trace(layers=layers, stacks=stacks)


def without_probe(*layers: str) -> Callable[[], Any]:
    @contextlib.contextmanager
    def enter() -> Any:
        os.environ["DISPATCH_INSPECT_PROBE"] = "never"
        try:
            recording = di.trace(layers=layers)
            with recording as trace:
                yield trace
        finally:
            del os.environ["DISPATCH_INSPECT_PROBE"]

    return enter


FLOOR = "both empty modes (the floor)"
PROFILER, HOPS = "torch.profiler(record_shapes)", "trace: hops"
WITH_END = ", with its end"
SUBJECTS: dict[str, Callable[[], Any]] = {
    "eager": contextlib.nullcontext,
    "empty TorchDispatchMode": EmptyDispatchMode,
    FLOOR: both_empty,
    PROFILER: lambda: profile(record_shapes=True),
    "DebugMode(torchfunction, nn_module)": lambda: DebugMode(
        record_torchfunction=True, record_nn_module=True
    ),
    "trace in Python: functions + ops": without_probe("functions", "ops"),
    "trace: functions + ops": recording("functions", "ops"),
    "trace: modules + functions + ops": recording("modules", "functions", "ops"),
    "trace: the same with stacks": recording("modules", "functions", "ops", stacks=True),
    HOPS: recording("hops"),
    "trace: modules + functions + ops + hops": recording("modules", "functions", "ops", "hops"),
}


def additions() -> Callable[[], None]:
    a, b = torch.ones(4), torch.ones(4)

    def work() -> None:
        for _ in range(ADDITIONS):
            torch.add(a, b)

    return work


def training_step() -> Callable[[], None]:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 256, batch_first=True, dropout=0.0)
    model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.randn(4, 16, 64)

    def work() -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    return work


def measure(work: Callable[[], None], rounds: int) -> dict[str, float]:
    """Seconds of the fastest round of each subject."""
    best = dict.fromkeys(SUBJECTS, float("inf"))
    for _ in range(rounds):
        for name, enter in SUBJECTS.items():
            gc.collect()
            with enter():
                work()
                begin = perf_counter()
                work()
                best[name] = min(best[name], perf_counter() - begin)
    return best


def measure_with_end(work: Callable[[], None], rounds: int) -> dict[str, float]:
    """Seconds that a further round adds to the whole block, its end included."""
    more = 20
    found = {}
    for name in (PROFILER, HOPS):
        best = {1: float("inf"), 1 + more: float("inf")}
        for _ in range(rounds):
            for times in best:
                gc.collect()
                begin = perf_counter()
                with SUBJECTS[name]():
                    for _ in range(times):
                        work()
                best[times] = min(best[times], perf_counter() - begin)
        found[name + WITH_END] = (best[1 + more] - best[1]) / more
    return found


def operators(work: Callable[[], None]) -> int:
    with di.trace(layers=("ops",)) as trace:
        work()
    return len(trace)


def machine() -> str:
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
        model = names[0] if names else model
    return (
        f"{os.cpu_count()} cores of {model}, Python {platform.python_version()}, "
        f"torch {torch.__version__}, one thread"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    step = training_step()
    calls = operators(step)
    probe.load()
    small = measure(additions(), options.rounds) | measure_with_end(additions(), 5)
    large = measure(step, options.rounds) | measure_with_end(step, 5)
    head = ("subject", "(a) µs a call", "ratio", "(b) µs an operator", "ratio")
    rows = [
        (
            name,
            f"{small[name] / ADDITIONS * 1e6:.1f}",
            f"{small[name] / small[FLOOR]:.2f}",
            f"{large[name] / calls * 1e6:.1f}",
            f"{large[name] / large[FLOOR]:.2f}",
        )
        for name in small
    ]
    print(f"{machine()}\n(b) is one step of {calls} operators\n")
    if options.markdown:
        print("| " + " | ".join(head) + " |\n|---|--:|--:|--:|--:|")
        for row in rows:
            print("| " + " | ".join(row) + " |")
        return
    widths = [max(len(row[place]) for row in (head, *rows)) for place in range(len(head))]
    for row in (head, *rows):
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        print("  ".join(cells))


if __name__ == "__main__":
    main()
