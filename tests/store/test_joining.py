"""Threads and processes joined: one preorder walk in the order in which things began."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import traces
from hypothesis import given, settings
from hypothesis import strategies as st

import dispatch_inspect as di


def test_each_root_keeps_its_calls_and_roots_are_in_time_order(tmp_path: Path) -> None:
    builder = traces.Builder(tmp_path / "t.dtrace")
    main, other = builder.lane("MainThread"), builder.lane("other")
    builder.write(main, "aten::a\n  aten::a1")
    builder.write(other, "aten::b\n  aten::b1")
    builder.write(main, "aten::c")
    builder.writer.close()
    trace = di.load(tmp_path / "t.dtrace")
    assert trace.names() == ["aten::a", "aten::a1", "aten::b", "aten::b1", "aten::c"]
    assert [event.thread for event in trace.events] == ["MainThread"] * 2 + ["other"] * 2 + [
        "MainThread"
    ]
    assert [event.parent.name if event.parent else None for event in trace.events] == [
        None,
        "aten::a",
        None,
        "aten::b",
        None,
    ]
    assert [child.name for child in trace.events[2].children] == ["aten::b1"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=40))
def test_joined_traces_are_preorder_walks(steps: list[tuple[int, int]]) -> None:
    """``steps`` are calls begun on one of three threads, after closing some of its open ones."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.dtrace"
        builder = traces.Builder(path)
        lanes = [builder.lane(f"thread {number}") for number in range(3)]
        open_rows: list[list[int]] = [[], [], []]
        expected: list[list[str]] = [[], [], []]
        for number, (thread, close) in enumerate(steps):
            for _ in range(min(close, len(open_rows[thread]))):
                lanes[thread].end(open_rows[thread].pop(), builder._tick(), 0, ())
            record = traces._name(traces.CallPattern(f"t{thread}::{number}"))
            name = builder.writer.tables["names"].intern(number, lambda record=record: record)
            open_rows[thread].append(lanes[thread].begin(3, builder._tick(), name, 0, (), 0, 0, 0))
            expected[thread].append(f"t{thread}::{number}")
        builder.writer.close()
        trace = di.load(path)
        assert len(trace) == len(steps)
        depths = [event.depth for event in trace.events]
        assert depths[0] == 0
        assert all(after <= before + 1 for before, after in itertools.pairwise(depths))
        for event in trace.events:
            end = trace.stored.subtree_end(event.id)
            assert all(depths[row] > event.depth for row in range(event.id + 1, end))
            assert end == len(depths) or depths[end] <= event.depth
            assert all(child.parent == event for child in event.children)
        ends = trace.stored.column("subtree_end").tolist()
        assert ends == [trace.stored.subtree_end(row) for row in range(len(trace))]
        for thread in range(3):
            names = [e.name for e in trace.events if e.thread == f"thread {thread}"]
            assert names == expected[thread]


def test_reading_one_event_parses_only_what_it_needs(tmp_path: Path) -> None:
    path = traces.build(tmp_path / "t.dtrace", "\n".join(f"aten::op{n}" for n in range(200)))
    trace = di.load(path)
    assert trace.events[150].name == "aten::op150"
    parsed = trace.stored.processes[0].tables["names"]._cache
    assert list(parsed) == [150]


def test_slices_are_lazy_sequences(tmp_path: Path) -> None:
    path = traces.build(tmp_path / "t.dtrace", "\n".join(f"aten::op{n}" for n in range(20)))
    events = di.load(path).events
    assert [event.id for event in events[5:15:5]] == [5, 10]
    assert events[-1].id == 19
    assert len(events[3:]) == 17


def test_several_ranks_are_one_data_set(tmp_path: Path) -> None:
    from dispatch_inspect.store import records
    from dispatch_inspect.store.writer import TraceWriter

    builder = traces.Builder(tmp_path / "t.dtrace")
    builder.write(builder.lane("MainThread"), "aten::a  f32[2] -> f32[2]")
    builder.writer.close()
    second = traces.Builder.__new__(traces.Builder)
    second.clock, second.tensors = builder.clock, 0
    second.writer = TraceWriter(
        tmp_path / "t.dtrace", records.Process(pid=99, rank=3, keys=traces.LAYOUT)
    )
    second.write(second.lane("MainThread"), "aten::b  f32[7] -> f32[7]")
    second.writer.close()
    trace = di.load(tmp_path / "t.dtrace")
    assert trace.names() == ["aten::a", "aten::b"]
    assert trace.events[1].process == 99
    assert trace.events[1].args["0"].shape == (7,)
    assert trace.events[1].args["0"].tensor_id != trace.events[0].args["0"].tensor_id
    assert trace.events[1].key == "CPU"
