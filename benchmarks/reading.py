"""How fast a trace of 5 million events opens, answers and filters.

    python benchmarks/reading.py [--events N]

Every figure is the fastest of a few rounds in one process, each on a freshly opened trace; the
file cache is warm.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import numpy as np

import dispatch_inspect as di
from dispatch_inspect.store import records
from dispatch_inspect.store.layout import EVENT_COLUMNS, FORMAT, OPERAND_COLUMNS, VERSION

TYPES = {"B": "<u1", "H": "<u2", "I": "<u4", "Q": "<u8"}
NAMES = 300


def generate(path: Path, events: int) -> None:
    """A trace like that of a training loop: module > function > three operators, over and over."""
    lane = path / "rank=00000" / "lane=00000"
    lane.mkdir(parents=True)
    (path / "trace.json").write_text(json.dumps({"format": FORMAT, "version": VERSION}))
    process = records.Process(pid=0, torch="generated")
    (lane.parent / "process.json").write_text(process.model_dump_json())
    (lane.parent / "end.json").write_text(records.End(ended_ns=0).model_dump_json())
    (lane / "lane.json").write_text(records.Lane(thread="MainThread").model_dump_json())
    _tables(lane.parent)
    rows = np.arange(events)
    place = rows % 5
    start = rows - place
    columns = {
        "kind": np.array([1, 2, 3, 3, 3])[place],
        "outcome": np.ones(events),
        "depth": np.array([0, 1, 2, 2, 2])[place],
        "parent": np.where(place == 0, 0, np.where(place == 1, start + 1, start + 2)),
        "subtree_end": np.minimum(np.where(place < 2, start + 5, rows + 1), events),
        "begin_ns": rows * 1_000,
        "end_ns": rows * 1_000 + np.where(place < 2, 4_500, 800 + rows % 7 * 100),
        "name": rows * 7 % NAMES + 1,
        "arguments": np.ones(events),
        "result": np.full(events, 2),
        "input_at": rows * 3,
        "output_at": rows * 3 + 2,
        "state": np.ones(events),
    }
    for name, code in EVENT_COLUMNS.items():
        values = columns.get(name, np.zeros(events))
        values.astype(TYPES[code]).tofile(lane / f"{name}.bin")
    operands = np.arange(events * 3)
    for name, code in OPERAND_COLUMNS.items():
        values = {"operand_event": operands // 3, "operand_descriptor": operands % 50 + 1}
        values.get(name, operands + 1).astype(TYPES[code]).tofile(lane / f"{name}.bin")


def _tables(folder: Path) -> None:
    for name in records.TABLES:
        (folder / f"{name}.jsonl").write_text("")
    names = [
        records.OperatorName(kind="op", name=f"aten::op{number}.Tensor") for number in range(NAMES)
    ]
    (folder / "names.jsonl").write_text("".join(f"{one.model_dump_json()}\n" for one in names))
    hole = {"tensor": None}
    values = [records.Values(args=(hole, hole)), records.Values(args=(hole,))]
    (folder / "values.jsonl").write_text("".join(f"{one.model_dump_json()}\n" for one in values))
    (folder / "states.jsonl").write_text(records.State().model_dump_json() + "\n")
    descriptors = [
        records.Descriptor(
            dtype="float32" if number % 3 else "bfloat16", device="cpu", shape=(number, 4)
        )
        for number in range(50)
    ]
    text = "".join(f"{one.model_dump_json()}\n" for one in descriptors)
    (folder / "descriptors.jsonl").write_text(text)


def fastest(work: Callable[[], object], rounds: int = 5) -> float:
    """Milliseconds of the fastest of some rounds."""
    times = []
    for _ in range(rounds):
        begin = perf_counter()
        work()
        times.append(perf_counter() - begin)
    return min(times) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--events", type=int, default=5_000_000)
    count = parser.parse_args().events
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.dtrace"
        generate(path, count)
        wanted = count * 4 // 5
        print(f"{count:,} events")

        def one_event() -> None:
            event = di.load(path).events[wanted]
            assert event.name
            assert event.args["0"].dtype

        print(f"open, and read event {wanted:,}: {fastest(one_event):8.1f} ms")
        for text in ("aten::op7", "kind:op", "dur>1us", "dtype:bf16", "shape:[3,*]", "depth:2"):
            print(
                f"filter {text:<25}{fastest(lambda text=text: di.load(path).where(text)):8.1f} ms"
            )
        for text in ("in:aten::op7", "has:aten::op7", "key:CPU"):
            taken = fastest(lambda text=text: di.load(path).where(text), 2)
            print(f"filter {text:<25}{taken:8.1f} ms")
        taken = fastest(lambda: di.load(path).stats(), 2)
        print(f"statistics by name              {taken:8.1f} ms")


if __name__ == "__main__":
    main()
