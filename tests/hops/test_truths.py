"""What the dispatcher does in well-known programs, hop by hop, in the notation.

``DISPATCH_INSPECT_WRITE_TRUTHS=1`` writes the files anew: read what changed.
"""

from __future__ import annotations

import os
from pathlib import Path

import programs
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import dispatch_inspect as di
from dispatch_inspect.notation import parse_tree
from dispatch_inspect.query.notated import pattern_of

TRUTHS = Path(__file__).parent / "truths"


def record(name: str) -> di.Trace:
    torch.manual_seed(0)
    program = programs.PROGRAMS[name]()
    with di.trace(layers=("hops",)) as trace:
        program()
    return trace


def written(trace: di.Trace) -> str:
    lines = []
    for event in trace.events:
        comment = "  # redispatch" if event.entered_by == "redispatch" else ""
        lines.append(f"{'  ' * event.depth}{pattern_of(event)}{comment}\n")
    return "".join(lines)


@pytest.fixture(autouse=True)
def one_thread() -> object:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_every_hop_is_there(name: str) -> None:
    trace = record(name)
    assert trace.notes == ()
    text = written(trace)
    path = TRUTHS / f"{name}.txt"
    if os.environ.get("DISPATCH_INSPECT_WRITE_TRUTHS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()
    # the notation reads back what it writes
    assert parse_tree(text)


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_calls_are_those_that_the_profiler_sees(name: str) -> None:
    """torch.profiler is told of Dispatcher::call and not of redispatch: an independent witness."""
    trace = record(name)
    torch.manual_seed(0)
    program = programs.PROGRAMS[name]()
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        program()
    names = {event.name.split(".")[0] for event in trace.events}
    # as recorded: the list it prints from leaves out what is nested in a call of the same name
    raw = seen.profiler.kineto_results.events()  # type: ignore[union-attr]
    expected = [event.name() for event in raw if "::" in event.name() and event.name() in names]
    found = [
        event.name.split(".")[0]
        for event in trace.events
        # PyTorch tells no observer of its own markers
        if event.entered_by == "call" and not event.name.startswith("profiler::")
    ]
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_each_hop_names_its_kernel_and_a_redispatch_has_fewer_keys(name: str) -> None:
    for event in record(name).events:
        if event.kind != "hop":
            continue
        assert event.key == (event.keyset or ("Undefined",))[0]
        missing = event.error is not None and event.error.type == "NotImplementedError"
        if not (missing and not event.children):
            assert event.kernel is not None, event
            assert not event.kernel.startswith("fallthrough")
        if event.entered_by == "redispatch":
            parent = event.parent
            assert parent is not None
            assert parent.name == event.name
            assert set(event.keyset) < set(parent.keyset)


def test_a_missing_kernel_says_which_key_had_none() -> None:
    trace = record("missing_kernel")
    last = trace.events[-1]
    assert (last.key, last.kernel) == ("CPU", None)
    assert last.error is not None
    assert last.error.message.startswith("Could not run 'aten::_flash_attention_forward'")
