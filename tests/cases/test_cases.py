"""Programs from real reports: each prints the same and ends the same, and its trace is true."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import dispatch_inspect as di

PROGRAMS = Path(__file__).parent / "programs"
LAYERS = ("modules,functions,ops", "ops", "functions")
NAMES = sorted(path.stem for path in PROGRAMS.glob("*.py"))


@functools.cache
def plain(name: str) -> tuple[str, int]:
    """Output and exit code without this tool."""
    done = subprocess.run(
        [sys.executable, f"{name}.py"], cwd=PROGRAMS, capture_output=True, text=True, check=False
    )
    return done.stdout, done.returncode


def run(name: str, folder: Path, layers: str, *options: str) -> di.Trace:
    """Runs a program recorded, compares, and opens what was recorded."""
    path = folder / f"{name}.dtrace"
    command = [sys.executable, "-m", "dispatch_inspect", "run", "-o", str(path)]
    environment = {**os.environ}
    environment.pop("DISPATCH_INSPECT_RAISE_FAULTS", None)
    done = subprocess.run(
        [*command, "--layers", layers, *options, f"{name}.py"],
        cwd=PROGRAMS,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert (done.stdout, done.returncode) == plain(name), done.stderr
    trace = di.load(path)
    assert not any("fault" in note for note in trace.notes), trace.notes
    return trace


@pytest.mark.parametrize("layers", LAYERS[1:])
@pytest.mark.parametrize("name", NAMES)
def test_it_prints_and_ends_the_same(name: str, layers: str, tmp_path: Path) -> None:
    run(name, tmp_path, layers, *(("--stacks",) if layers == "ops" else ()))


@pytest.mark.parametrize("name", NAMES)
def test_it_is_told_truly(name: str, tmp_path: Path) -> None:
    FACTS[name](run(name, tmp_path, LAYERS[0]))


def ops(trace: di.Trace, where: str = "") -> list[str]:
    return [event.name for event in trace.where(f"kind:op {where}")]


def views(trace: di.Trace) -> None:
    # a reshape that can be a view is one; the other copies, and the copy is what is viewed
    reshapes = [
        [child.name for child in event.children] for event in trace.where("torch.Tensor.reshape")
    ]
    assert reshapes[1:4] == [
        ["aten::view"],
        ["aten::clone", "aten::_unsafe_view"],
        ["aten::view"],
    ]
    # asking for what is there already dispatches nothing
    assert trace.where("torch.Tensor.contiguous")[0].children == []
    # the slices, transposes and views share storage; clones and indexing do not
    assert all(e.aliases for e in trace.where("aten::t,aten::slice.Tensor,aten::unfold"))
    assert not any(e.aliases for e in trace.where("name:aten::clone,aten::index.Tensor"))
    *_, last = trace.where("err")
    assert (last.name, last.error.type if last.error else "") == ("aten::view", "RuntimeError")
    assert {e.note.rule for e in trace.events if e.note} == {"reshape-alias"}


def kinds_of_values(trace: di.Trace) -> None:
    (out,) = trace.where("aten::add.out")
    assert out.args["out"].shape == (0,)
    assert out.outputs[0].shape == (2,)
    assert out.outputs[0].tensor_id == out.args["out"].tensor_id
    (index,) = trace.where("aten::index.Tensor")
    assert [one is None for one in index.args["indices"]].count(True) >= 3
    (foreach,) = trace.where("aten::_foreach_mul_.ScalarList")
    assert foreach.args["scalars"] == [2.0, 3.0]
    assert [one.shape for one in foreach.args["self"]] == [(2,), (3,)]
    fills = [event.args["fill_value"] for event in trace.where("aten::full")]
    assert fills[0] == float("inf")
    assert fills[1] != fills[1]
    assert str(fills[2]) == "-0.0"
    complex_ = [e.args["other"] for e in trace.where("aten::mul.Tensor")]
    assert 1 + 2j in complex_
    (divided,) = trace.where("aten::div.Tensor_mode")
    assert divided.args["rounding_mode"] == "floor"
    assert "aten::set_.source_Storage" in ops(trace)
    assert "aten::split_with_sizes" in ops(trace)
    (channels,) = [e for e in trace.where("aten::empty.memory_format") if "memory_format" in e.args]
    assert str(channels.args["memory_format"]) == "torch.channels_last"


def autocast(trace: di.Trace) -> None:
    casts = [
        (event.args["self"].dtype, event.outputs[0].dtype)
        for event in trace.where("aten::_to_copy mode:autocast")
    ]
    assert (
        casts
        == [("float32", "bfloat16")] * 3 + [("bfloat16", "float32")] + [("float32", "float64")] * 2
    )
    softmax = trace.where("aten::_softmax")[0]
    assert softmax.args["self"].dtype == "bfloat16"
    failed = list(trace.where("err kind:op"))
    assert [event.name for event in failed] == ["aten::addmm"]
    assert failed[0].mode.autocast == ()
    assert trace.where("torch.nn.functional.linear")[0].mode.autocast == ("cpu:bfloat16",)


def override(trace: di.Trace) -> None:
    # the registered kernel answers at AutogradCPU: no aten::sinh reaches a mode until it is gone
    assert ops(trace, "aten::sinh") == ["aten::sinh"] * 2
    inference, after = trace.where("aten::sinh kind:op")
    assert inference.mode.inference
    assert not after.mode.inference
    assert "override.py" not in dict(after.route)["AutogradCPU"]


def gradients(trace: di.Trace) -> None:
    assert ops(trace, "cases::double")[0] == "cases::double"
    assert "cases::square" in ops(trace)
    failed = trace.where("err kind:op")[-1]
    assert failed.name == "cases::double"
    assert failed.error is not None
    assert failed.error.type == "NotImplementedError"


def compiled(trace: di.Trace) -> None:
    regions = [event.name for event in trace.where("kind:region")]
    assert regions.count("soft") == 4
    assert regions.count("whole") == 2
    soft = trace.where("kind:region soft")[1]
    assert [e.name for e in trace.where("in:soft kind:op") if soft.id < e.id][:3] == [
        "aten::sin",
        "aten::add.Tensor",
        "aten::relu",
    ]


def conjugate(trace: di.Trace) -> None:
    assert "aten::_conj" in ops(trace)
    conj = trace.where("aten::_conj")[0]
    assert conj.aliases == ((0, "self"),)
    assert "Conjugate" in conj.outputs[0].keys
    assert "aten::_neg_view" in ops(trace)


def loader(trace: di.Trace) -> None:
    parent = trace.stored.process.pid
    workers = {event.process for event in trace.where("aten::pow.Tensor_Scalar")} - {parent}
    assert len(workers) == 3
    (failed,) = trace.where("aten::dot err kind:op")
    assert failed.process != parent
    assert len(trace.where("aten::pow.Tensor_Scalar")) == 4 + 4 + 3


def deep(trace: di.Trace) -> None:
    clones = trace.where("aten::clone")
    assert len(clones) == 151
    assert len({event.thread for event in clones}) > 1
    assert len(trace.where("aten::mul.Tensor !in:backward")) >= 1200


def fakes(trace: di.Trace) -> None:
    errors = {e.error.type.split(".")[-1] for e in trace.where("err kind:op") if e.error}
    assert {"DynamicOutputShapeException", "DataDependentOutputException"} <= errors
    assert any(
        isinstance(size, str)
        for event in trace.events
        for value in event.args.values()
        for size in (getattr(value, "shape", None) or ())
    )


def scripted(trace: di.Trace) -> None:
    loop = ("aten::mul.Tensor", "aten::add.Scalar")
    assert [name for name in ops(trace) if name in loop][:8] == [*loop] * 4
    noted = [event for event in trace.events if event.note and event.note.rule == "jit-trace"]
    assert len(noted) == 2
    assert all(not event.children for event in noted)


def spawned(trace: di.Trace) -> None:
    assert ops(trace).count("aten::arange") == 1


def hooks(trace: di.Trace) -> None:
    halves = [event.outputs[0].dtype for event in trace.where("aten::_to_copy !in:backward")]
    assert halves == ["float16"] * 3
    assert len(trace.where("aten::_to_copy in:backward dtype:f16")) == 3


def missing(trace: di.Trace) -> None:
    failed = [(e.name, e.error.type if e.error else "") for e in trace.where("err kind:op")]
    assert failed[0] == ("aten::view", "NotImplementedError")
    assert ("aten::softplus", "NotImplementedError") in failed
    assert ("aten::cumsum", "NotImplementedError") in failed
    # the composite raised before it dispatched anything
    (reshape,) = trace.where("torch.Tensor.reshape")
    assert reshape.error is not None
    assert reshape.children == []
    assert "aten::_sparse_coo_tensor_with_dims_and_tensors" in ops(trace)


def fast_path(trace: di.Trace) -> None:
    assert ops(trace).count("aten::_transformer_encoder_layer_fwd") == 3
    assert ops(trace).count("aten::_native_multi_head_attention") == 1
    nested = trace.where("aten::_transformer_encoder_layer_fwd")[-1]
    assert "NestedTensorCPU" in nested.args["src"].keys
    assert "aten::_nested_tensor_from_mask" in ops(trace)


def dies(trace: di.Trace) -> None:
    assert ops(trace) == ["aten::ones", "aten::cumsum"]
    assert any("ended early" in note for note in trace.notes)


def leaves(trace: di.Trace) -> None:
    assert ops(trace) == [
        "aten::arange.start" if "aten::arange.start" in ops(trace) else "aten::arange",
        "aten::mul.Tensor",
        "aten::sum",
        "aten::_local_scalar_dense",
    ]


FACTS: dict[str, Callable[[di.Trace], None]] = {
    check.__name__: check
    for check in (
        views,
        kinds_of_values,
        autocast,
        override,
        gradients,
        compiled,
        conjugate,
        loader,
        deep,
        fakes,
        scripted,
        spawned,
        hooks,
        missing,
        fast_path,
        dies,
        leaves,
    )
}


def test_every_program_has_its_facts() -> None:
    assert set(FACTS) == set(NAMES)
