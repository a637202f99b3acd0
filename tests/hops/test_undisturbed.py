"""Hops alone change nothing, whatever the program does to the dispatcher meanwhile."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import dispatch_inspect as di
from dispatch_inspect.record import probe


def hops(**options: Any) -> di.trace:
    return di.trace(layers=("hops",), **options)


def names(trace: di.Trace) -> list[str]:
    return trace.names(kind="hop")


def backend_names(trace: di.Trace) -> list[str]:
    return [event.name for event in trace.where("key:CPU")]


def test_the_fused_encoder_layer_stays() -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    with torch.no_grad(), hops() as trace:
        layer(torch.ones(2, 3, 16))
    assert "aten::_transformer_encoder_layer_fwd" in names(trace)


def test_an_operator_without_autograd_kernel_keeps_its_gradient() -> None:
    with torch.library._scoped_library("hops_plain", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CPU")
        x = torch.ones(2, requires_grad=True)
        plain = torch.ops.hops_plain.twice(x)
        with hops() as trace:
            traced = torch.ops.hops_plain.twice(x)
        assert type(plain.grad_fn) is type(traced.grad_fn)
    assert "hops_plain::twice" in names(trace)


def test_tables_are_put_back() -> None:
    with hops():
        torch.ones(1)
    torch._C._dispatch_check_all_invariants()


def test_questions_about_tables_are_answered_from_pytorchs_own() -> None:
    has = "_dispatch_has_computed_kernel_for_dispatch_key"
    asked = [(name, key) for name in ("aten::add.Tensor", "aten::_nnz") for key in ("CPU", "XLA")]
    plain = [getattr(torch._C, has)(*one) for one in asked]
    with hops() as trace:
        assert [getattr(torch._C, has)(*one) for one in asked] == plain
        torch._C._dispatch_check_all_invariants()
        torch._C._dispatch_check_invariants("aten::add.Tensor")
        kernel = torch.library.get_kernel("aten::neg", "CPU")
        torch.neg(torch.ones(1))
    assert not all(plain)
    assert any(plain)
    assert "aten::neg" in names(trace)
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
    assert kernel.call_boxed(keys, torch.ones(1)).item() == -1


def test_operators_defined_overridden_and_destroyed_meanwhile() -> None:
    with hops() as trace:
        with torch.library._scoped_library("hops_late", "DEF") as library:
            library.define("op(Tensor x) -> Tensor")
            library.impl("op", lambda x: x + 1, "CompositeExplicitAutograd")
            assert torch.ops.hops_late.op(torch.ones(1)).item() == 2
            library.impl("op", lambda x: x + 10, "CPU")
            assert torch.ops.hops_late.op(torch.ones(1)).item() == 11
            with torch.library._scoped_library("hops_late", "IMPL") as second:
                second.impl("op", lambda x: x + 100, "CPU", allow_override=True)
                assert torch.ops.hops_late.op(torch.ones(1)).item() == 101
            assert torch.ops.hops_late.op(torch.ones(1)).item() == 11
        torch.ones(1).add(1)
    assert names(trace).count("hops_late::op") >= 4
    kernels = [
        event.kernel.split(" [")[1]
        for event in trace.where("hops_late::op")
        if event.kernel and event.key == "CPU"
    ]
    assert kernels == ["default backend kernel]", "kernel]", "kernel]", "kernel]"]
    torch._C._dispatch_check_all_invariants()


def test_overriding_an_operator_in_use() -> None:
    with torch.library._scoped_library("aten", "IMPL") as library:
        with hops() as trace:
            library.impl("aten::sgn", lambda x: x * 0 + 7, "CPU", allow_override=True)
            assert torch.sgn(torch.ones(1)).item() == 7
        # the override outlives the recording
        assert torch.sgn(torch.ones(1)).item() == 7
    assert torch.sgn(torch.ones(1)).item() == 1
    assert "aten::sgn" in names(trace)


def test_the_very_same_errors() -> None:
    def failures() -> list[tuple[type, str]]:
        x = torch.ones(2, 3, requires_grad=True)
        attempts = (
            lambda: torch.ops.aten._flash_attention_forward(
                x, x, x, None, None, 1, 1, 0.0, False, False
            ),
            lambda: torch.ops.aten._nnz(torch.ones(1)),
            lambda: torch.mm(x, x),
            lambda: x.add_(1),
            lambda: torch.cat([]),
            lambda: torch.stack([torch.ones(1), torch.ones(2)]),
            lambda: torch.ones(1)[5],
            lambda: torch.linalg.inv(torch.zeros(2, 2)),
            lambda: torch.empty(1, device="xla"),
            lambda: torch.add(torch.ones(2), torch.ones(3)),
        )
        found = []
        for attempt in attempts:
            with pytest.raises(Exception) as caught:  # noqa: PT011
                attempt()
            found.append((caught.type, str(caught.value)))
        return found

    plain = failures()
    with hops() as trace:
        traced = failures()
    assert traced == plain
    assert not any(event.is_open for event in trace.events)
    failed = {event.name: event.error for event in trace.where("err")}
    assert failed["aten::_nnz"].type == "NotImplementedError"
    # before any mode would have seen it: an in-place write to a leaf
    assert "leaf Variable" in failed["aten::add_.Tensor"].message


def test_an_exception_of_python_code_passes_unchanged() -> None:
    class Own(Exception):
        pass

    class Raises(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            raise Own("mine")

    mode = Raises()
    with hops() as trace, pytest.raises(Own, match="mine"), mode:
        torch.ones(1)
    assert [event.error.type for event in trace.where("err") if event.key == "Python"] == [
        f"{__name__}.{Own.__qualname__}"
    ]
    # a mode that is not the tracer's is no doing of the tracer's
    assert not any(event.is_tracers for event in trace.events)


def test_ended_inside_a_call() -> None:
    recording = hops()
    trace = recording.__enter__()

    class Ends(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func is torch.ops.aten.mul.Tensor:
                recording.__exit__(None, None, None)
            return func(*args, **(kwargs or {}))

    with Ends():
        y = torch.ones(2).mul(3)
    assert y.tolist() == [3, 3]
    assert "aten::mul.Tensor" in names(trace)
    torch.ones(2).neg()
    assert "aten::neg" not in names(trace)
    torch._C._dispatch_check_all_invariants()


def test_started_and_stopped_while_threads_dispatch() -> None:
    """No call is lost, torn or harmed while the tables are changed under it."""
    stop = threading.Event()
    wrong: list[Any] = []
    done = Counter[int]()

    def work(number: int) -> None:
        x = torch.full((4,), float(number), requires_grad=True)
        while not stop.is_set():
            y = (x * 2 + 1).sum()
            y.backward()
            if y.item() != 4 * (2 * number + 1) or x.grad is None or x.grad.tolist() != [2.0] * 4:
                wrong.append((number, y, x.grad))
            x.grad = None
            done[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    counts = []
    for _ in range(30):
        with hops() as trace:
            torch.ones(2).add(1)
        counts.append(len(trace))
        broken = [e for e in trace.events if e.kind not in ("hop", "region") or e.name == "?"]
        assert not broken
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert min(done.values()) > 0
    assert all(counts)
    torch._C._dispatch_check_all_invariants()


def test_every_thread_is_recorded() -> None:
    begin, end = threading.Event(), threading.Event()

    def work() -> None:
        begin.wait()
        torch.ones(3).cos()
        end.set()

    # it runs before the recording begins: no mode could see it
    early = threading.Thread(target=work, name="early")
    early.start()
    with hops() as trace:
        begin.set()
        end.wait()
        late = threading.Thread(target=lambda: torch.ones(3).sin(), name="late")
        late.start()
        late.join()
    early.join()
    (sin,) = trace.where("aten::sin key:CPU")
    assert sin.thread == "late"
    assert [event.key for event in trace.where("aten::cos")] == ["AutogradCPU", "CPU"]
    with hops(threads=False) as trace:
        other = threading.Thread(target=lambda: torch.ones(3).sin())
        other.start()
        other.join()
        torch.ones(3).cos()
    assert set(names(trace)) >= {"aten::cos"}
    assert "aten::sin" not in names(trace)


def test_identities_and_weak_references() -> None:
    with hops() as trace:
        x = torch.ones(3)
        y = x.view(3, 1)
        z = x.add(1)
        del z
        kept = weakref.ref(y)
        del y
        gc.collect()
        assert kept() is None
        x.neg()
    (view,) = trace.where("aten::view key:CPU")
    assert view.outputs[0].storage_id == view.args["self"].storage_id
    assert view.outputs[0].tensor_id != view.args["self"].tensor_id
    (neg,) = trace.where("aten::neg key:CPU")
    assert neg.args["self"].tensor_id == view.args["self"].tensor_id
    (add,) = trace.where("aten::add.Tensor key:CPU")
    assert add.outputs[0].storage_id != add.args["self"].storage_id


def test_views_in_a_loop_are_different_tensors() -> None:
    x = torch.ones(8)
    with hops() as trace:
        for _ in range(5):
            x.view(2, 4).neg()
    views = [event.outputs[0] for event in trace.where("aten::view key:CPU")]
    assert len({one.tensor_id for one in views}) == 5
    assert len({one.storage_id for one in views}) == 1
    used = [event.args["self"].tensor_id for event in trace.where("aten::neg key:CPU")]
    assert used == [one.tensor_id for one in views]


def test_all_layers_stand_in_one_tree() -> None:
    layer = nn.Linear(3, 4)
    with di.trace(layers=("modules", "functions", "ops", "hops")) as trace:
        layer(torch.ones(2, 3))
    call = trace.where("aten::addmm kind:hop key:CPU")[0]
    above, event = [], call.parent
    while event is not None:
        above.append((event.kind, event.name))
        event = event.parent
    kinds = [kind for kind, _ in above]
    assert [kinds.index(kind) for kind in ("op", "hop", "function", "module")] == sorted(
        kinds.index(kind) for kind in ("op", "hop", "function", "module")
    )
    assert ("op", "aten::addmm") in above
    assert ("function", "torch.nn.functional.linear") in above
    # one tensor, one number, in every layer
    op = trace.where("aten::addmm kind:op")[0]
    assert op.args["mat2"].tensor_id == call.args["mat2"].tensor_id
    assert [one.tensor_id for one in op.outputs] == [one.tensor_id for one in call.outputs]
    # the line of the program, from the function around the hop
    assert call.stack[0].file == __file__
    own = [event for event in trace.events if event.is_tracers]
    assert {event.key for event in own} == {"Python", "PythonTLSSnapshot"}
    assert "@Python" not in trace.tree()
    assert "@PythonTLSSnapshot" in trace.tree(tracers=True)
    assert "Python" not in {row.group for row in trace.stats(by="key")}
    assert "Python" in {row.group for row in trace.stats(by="key", tracers=True)}


def test_nested_recordings_each_have_their_own() -> None:
    with hops() as outer:
        torch.ones(1).sin()
        with hops() as inner:
            torch.ones(1).cos()
        torch.ones(1).tan()
    assert [n for n in backend_names(outer) if n in ("aten::sin", "aten::cos", "aten::tan")] == [
        "aten::sin",
        "aten::cos",
        "aten::tan",
    ]
    assert "aten::cos" in names(inner)
    assert not {"aten::sin", "aten::tan"} & set(names(inner))


def test_pause_steps_names_and_a_limit() -> None:
    x = torch.ones(1)
    with hops() as trace:
        x.sin()
        trace.pause()
        x.cos()
        trace.resume()
        x.tan()
    assert backend_names(trace) == ["aten::sin", "aten::tan"]
    with hops(every=2) as trace:
        for _ in range(4):
            x.sin()
            trace.step()
    assert backend_names(trace) == ["aten::sin"] * 2
    with hops(names=["aten::c*"]) as trace:
        x.sin()
        x.cos()
    assert backend_names(trace) == ["aten::cos"]
    net = nn.Sequential(nn.ReLU(), nn.Tanh(), nn.Sigmoid())
    with hops(modules=["1"]) as trace:
        net(x)
    assert backend_names(trace) == ["aten::tanh"]
    with hops(max_events=3) as trace:
        for _ in range(9):
            x.sin()
    assert len(trace) == 3
    assert "max_events" in trace.notes[0]


def test_tensor_subclasses_and_fake_tensors() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.testing._internal.two_tensor import TwoTensor

    two = TwoTensor(torch.ones(2), torch.ones(2))
    with hops() as trace:
        two.mul(3)
    outer = trace.where("aten::mul.Tensor key:Python")[0]
    assert outer.args["self"].subclass.endswith("two_tensor.TwoTensor")
    assert len(trace.where("aten::mul.Tensor key:CPU")) == 2
    with FakeTensorMode(), hops() as trace:
        torch.ones(2, 3).mul(2)
    fake = trace.where("aten::mul.Tensor key:Python")[0].args["self"]
    assert (fake.shape, fake.device) == ((2, 3), "cpu")


def test_symbolic_sizes_are_not_guarded_on() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    def run() -> tuple[list[str], str]:
        made = make_fx(lambda x: x.view(-1).mul(2), tracing_mode="symbolic")(torch.ones(5, 7))
        return [str(one.expr) for one in made.shape_env.guards], made.code

    plain = run()
    with hops() as trace:
        traced = run()
    assert traced == plain
    shapes = {event.args["self"].shape for event in trace.where("aten::mul.Tensor")}
    assert any(isinstance(size, str) for shape in shapes if shape for size in shape)


def test_compiled_functions_stay_compiled() -> None:
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()
    function = torch.compile(lambda x: (x * 2).relu(), backend=counter, fullgraph=True)
    with hops() as trace:
        assert function(torch.ones(2)).tolist() == [2, 2]
    assert function(torch.ones(2)).tolist() == [2, 2]
    assert counter.frame_count == 1
    assert "aten::relu" in names(trace)


def test_scripted_functions() -> None:
    scripted = torch.jit.script(torch.nn.functional.relu)
    with hops() as trace:
        assert scripted(torch.ones(2)).tolist() == [1, 1]
    assert "aten::relu" in names(trace)
    with hops():
        traced = torch.jit.trace(lambda x: x * x.shape[0], torch.ones(2))
    assert traced(torch.ones(3)).tolist() == [2, 2, 2] or traced(torch.ones(3)).tolist() == [
        3,
        3,
        3,
    ]


FORKS = """
import os, sys, torch
import dispatch_inspect as di
with di.trace(sys.argv[1], layers=("hops",)) as trace:
    torch.ones(1).sin()
    if os.fork() == 0:
        torch.ones(1).cos()
        # a child that leaves as multiprocessing's do
        os._exit(0)
    os.wait()
    torch.ones(1).tan()
"""


def test_a_forked_child_writes_to_a_part_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "t.dtrace"
    subprocess.run([sys.executable, "-c", FORKS, str(path)], check=True, timeout=120)
    trace = di.load(path)
    by_process: dict[int, set[str]] = {}
    for event in trace.events:
        by_process.setdefault(event.process, set()).add(event.name)
    parent, child = sorted(by_process.values(), key=lambda one: "aten::cos" in one)
    assert {"aten::sin", "aten::tan"} <= parent
    assert "aten::cos" not in parent
    assert "aten::cos" in child
    assert not {"aten::sin", "aten::tan"} & child


KILLED = """
import os, sys, signal, threading, torch
import dispatch_inspect as di
with di.trace(sys.argv[1], layers=("hops",)) as trace:
    x = torch.ones(4, requires_grad=True)
    threading.Timer(float(sys.argv[2]), os.kill, (os.getpid(), signal.SIGKILL)).start()
    number = 0
    while True:
        (x * 2).sum().backward()
        number += 1
        os.pwrite(3, number.to_bytes(8, "little"), 0)
"""


@pytest.mark.parametrize("seconds", [0.05, 0.2, 0.5])
def test_killed_at_any_moment(tmp_path: Path, seconds: float) -> None:
    path = tmp_path / "t.dtrace"
    with open(tmp_path / "count", "w+b") as count:
        count.write(bytes(8))
        count.flush()
        done = subprocess.run(
            ["bash", "-c", 'exec "$@" 3<>' + str(tmp_path / "count"), "bash"]
            + [sys.executable, "-c", KILLED, str(path), str(seconds)],
            check=False,
            timeout=120,
        )
        count.seek(0)
        steps = int.from_bytes(count.read(8), "little")
    assert done.returncode in (-9, 137)
    trace = di.load(path)
    assert [note for note in trace.notes if "died" not in note] == []
    assert len(trace.where("aten::sum key:AutogradCPU")) in (steps, steps + 1)


def test_a_full_disk_ends_the_recording_not_the_program(tmp_path: Path) -> None:
    code = """
import resource, signal, sys, torch
import dispatch_inspect as di
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with di.trace(sys.argv[1], layers=("hops",)) as trace:
    x = torch.ones(2, dtype=torch.float64)
    resource.setrlimit(resource.RLIMIT_FSIZE, (140_000, resource.RLIM_INFINITY))
    for number in range(60_000):
        x = x + number
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(x[0].item())
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "t.dtrace")],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.stdout.strip() == str(float(1 + sum(range(60_000)))), done.stderr
    trace = di.load(tmp_path / "t.dtrace")
    assert "no space left" in trace.notes[0]
    assert len(trace) >= 10_000


def test_without_a_compiler(tmp_path: Path) -> None:
    environment = dict(os.environ, PATH=str(tmp_path), DISPATCH_INSPECT_CACHE=str(tmp_path / "c"))
    environment.pop("CXX", None)
    code = "import dispatch_inspect as di, torch\nwith di.trace(layers=%r): torch.ones(1)\n"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys\nfrom dispatch_inspect.cli import main\nsys.exit(main())",
        ]
        + ["run", "--layers", "hops", "-o", str(tmp_path / "t.dtrace"), "-c", "1"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "install a C++ compiler" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "t.dtrace").exists()
    subprocess.run([sys.executable, "-c", code % (("ops",),)], env=environment, check=True)


def test_what_the_probe_stands_in_front_of() -> None:
    counts = probe.load().counts()
    assert counts["operators"] > 3_000
    assert counts["kernels"] > 200_000
    assert counts["unboxable"] == []


def test_backward_on_threads_of_the_engine() -> None:
    """The engine goes on in threads of its own when backward calls itself too deeply."""

    class Deeper(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, depth):
            ctx.depth = depth
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            if ctx.depth:
                with torch.enable_grad():
                    x = torch.ones(1, requires_grad=True)
                    Deeper.apply(x, ctx.depth - 1).sum().backward()
            return gradient * 2, None

    x = torch.ones(1, requires_grad=True)
    loss = Deeper.apply(x, 100).sum()
    with hops() as trace:
        loss.backward()
    assert x.grad is not None
    assert x.grad.item() == 2
    main, *others = sorted({event.thread for event in trace.events})
    assert main == "MainThread"
    assert others
    assert all(name.startswith(("native thread ", "pt_autograd")) for name in others)
    assert sum(event.name == "aten::mul.Tensor" for event in trace.where("key:CPU")) == 101


@pytest.mark.parametrize("layers", [("hops",), ("functions", "ops"), ("ops", "hops")])
def test_nothing_is_kept_alive(layers: tuple[str, ...]) -> None:
    uses = {
        "vmap": lambda t: torch.vmap(torch.sin)(t),
        "grad": lambda t: torch.func.grad(lambda x: x.sin().sum())(t),
        "jvp": lambda t: torch.func.jvp(torch.sin, (t,), (torch.ones_like(t),))[0],
        "functionalize": lambda t: torch.func.functionalize(lambda x: x.clone().add_(1))(t),
        "sparse": lambda t: (t.to_sparse() + t.to_sparse()).to_dense(),
        "nested": lambda t: torch.nested.as_nested_tensor([t, t]).unbind()[0],
        "view": lambda t: t.view(-1)[0],
        "backward": lambda t: t.clone().requires_grad_().sin().sum().backward(),
        "conj": lambda t: torch.complex(t, t).conj().abs(),
    }
    alive = {}
    for name, use in uses.items():
        gc.collect()
        t = torch.ones(2, 3)
        gone = weakref.ref(t)
        with di.trace(layers=layers):
            result = use(t)
            count = sys.getrefcount(t)
            del t, result
            if gone() is not None:
                alive[name] = count
    assert alive == {}
