"""What trace() records, when it records, and how it is asked to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

import dispatch_inspect as di


def test_pause_and_resume() -> None:
    with di.trace(layers=("ops",)) as trace:
        torch.ones(1)
        trace.pause()
        torch.zeros(1)
        trace.resume()
        torch.full((1,), 2.0)
    assert trace.names(kind="op") == ["aten::ones", "aten::full"]


def test_every_second_step() -> None:
    with di.trace(layers=("ops",), every=2) as trace:
        for number in range(5):
            torch.full((number + 1,), 1.0)
            trace.step()
    assert [event.outputs[0].shape for event in trace.events] == [(1,), (3,), (5,)]


def test_only_some_names() -> None:
    with di.trace(names=["aten::mm*", "torch.Tensor.sum"]) as trace:
        torch.mm(torch.ones(2, 2), torch.ones(2, 2)).sum()
    assert trace.names() == ["aten::mm", "torch.Tensor.sum"]


def test_only_inside_some_modules() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    with di.trace(modules=["1"]) as trace:
        net(torch.ones(1, 2))
        torch.ones(1)
    assert {event.module for event in trace.events} == {"1"}
    assert "aten::relu" in trace.names()


def test_a_limit_ends_the_recording_with_a_note() -> None:
    with di.trace(layers=("ops",), max_events=10) as trace:
        for _ in range(50):
            torch.ones(1)
    assert len(trace) == 10
    assert any("max_events" in note for note in trace.notes)


def test_a_limit_beyond_one_chunk_is_exact() -> None:
    with di.trace(layers=("ops",), max_events=20_001) as trace:
        for _ in range(20_100):
            torch.is_nonzero(torch.tensor(1))
    assert len(trace) == 20_001


def test_layers_are_chosen() -> None:
    net = torch.nn.Linear(2, 2)
    for layer, kinds in (
        ("modules", {"module"}),
        ("functions", {"function"}),
        ("ops", {"op"}),
    ):
        with di.trace(layers=(layer,)) as trace:
            net(torch.ones(1, 2))
        assert {event.kind for event in trace.events} == kinds


def test_unknown_layers_are_refused() -> None:
    with pytest.raises(di.UsageError, match="unknown layer: 'op'") as caught:
        di.trace(layers=("op",))
    assert "functions" in caught.value.hint
    with pytest.raises(di.UsageError, match="no layer"):
        di.trace(layers=())


@pytest.mark.parametrize("options", [{"max_events": 0}, {"every": 0}, {"max_events": "9"}])
def test_bad_numbers_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(di.UsageError, match="whole number"):
        di.trace(**options)  # type: ignore[arg-type]


def test_a_taken_path_is_refused_before_the_program_starts(tmp_path: Path) -> None:
    path = tmp_path / "t.dtrace"
    with di.trace(path):
        torch.ones(1)
    ran = False
    with pytest.raises(di.TraceExistsError), di.trace(path):
        ran = True
    assert not ran
    with di.trace(path, overwrite=True):
        torch.zeros(1)
    assert di.load(path).names(kind="op") == ["aten::zeros"]


def test_what_is_no_trace_is_never_overwritten(tmp_path: Path) -> None:
    kept = tmp_path / "data"
    kept.mkdir()
    (kept / "precious.txt").write_text("x")
    with pytest.raises(di.TraceExistsError, match="not a trace"), di.trace(kept, overwrite=True):
        pass
    assert (kept / "precious.txt").read_text() == "x"


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(di.TraceWriteError, match="no folder"),
        di.trace(tmp_path / "no" / "such" / "t.dtrace"),
    ):
        pass


def test_a_relative_path_stays_where_it_was_when_the_program_changes_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with di.trace("t.dtrace"):
        os.chdir("/")
        torch.ones(1)
    assert di.load(tmp_path / "t.dtrace").names(kind="op") == ["aten::ones"]


def test_a_decorated_function_is_a_recording_a_call(tmp_path: Path) -> None:
    @di.trace(tmp_path / "t.dtrace", layers=("ops",))
    def work(number: int) -> int:
        torch.ones(number)
        return number

    assert work(1) == 1
    assert work(2) == 2
    assert work.trace.events[0].outputs[0].shape == (2,)
    assert di.load(tmp_path / "t.dtrace").events[0].outputs[0].shape == (1,)
    assert di.load(tmp_path / "t.2.dtrace").events[0].outputs[0].shape == (2,)


def test_a_generator_is_not_decorated() -> None:
    with pytest.raises(di.UsageError, match="generator"):

        @di.trace()
        def numbers():  # type: ignore[no-untyped-def]
            yield 1


def test_nested_recordings_both_record() -> None:
    with di.trace(layers=("functions", "ops")) as outer:
        torch.ones(1)
        with di.trace(layers=("functions", "ops")) as inner:
            torch.zeros(1)
        torch.full((1,), 1.0)
    assert outer.names(kind="op") == ["aten::ones", "aten::zeros", "aten::full"]
    assert inner.names(kind="op") == ["aten::zeros"]
    assert "torch.zeros" in outer.names(kind="function")


def test_a_temporary_trace_goes_with_its_object() -> None:
    with di.trace() as trace:
        torch.ones(1)
    path = trace.path
    assert path.exists()
    del trace
    import gc

    gc.collect()
    assert not path.exists()


def test_a_trace_can_be_kept(tmp_path: Path) -> None:
    with di.trace() as trace:
        torch.ones(1)
    trace.save(tmp_path / "kept.dtrace")
    del trace
    assert di.load(tmp_path / "kept.dtrace").names(kind="op") == ["aten::ones"]


def test_stacks_hold_the_whole_python_stack_without_ours() -> None:
    def innermost() -> None:
        torch.ones(1)

    with di.trace(stacks=True) as trace:
        innermost()
    event = trace.where("aten::ones")[0]
    functions = [frame.function.split(".")[-1] for frame in event.stack]
    assert functions[:2] == ["innermost", "test_stacks_hold_the_whole_python_stack_without_ours"]
    assert not any("dispatch_inspect/record" in frame.file for frame in event.stack)


def test_without_stacks_the_users_own_line_is_kept() -> None:
    with di.trace() as trace:
        torch.nn.functional.linear(torch.ones(1, 2), torch.ones(2, 2))  # this line
    (frame,) = trace.where("aten::mm")[0].stack
    assert frame.file == __file__
    assert frame.source[frame.line - frame.first].endswith("# this line")
