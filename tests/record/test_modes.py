"""Other modes, tensor subclasses and transforms: nothing changes for them, and they are seen."""

from __future__ import annotations

import asyncio
import io
import signal
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._debug_mode import DebugMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import dispatch_inspect as di


class Logs(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.seen.append(func.name())
        return func(*args, **(kwargs or {}))


class LogsFunctions(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.seen.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


class Talks(torch.Tensor):
    """A subclass that tells of everything it is asked."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        print("function", getattr(func, "__name__", func))
        return super().__torch_function__(func, types, args, kwargs or {})


class Wraps(torch.Tensor):
    """A wrapper whose sizes and device are asked from its own handler."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Wraps:
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            dtype=inner.dtype,
            requires_grad=False,
            dispatch_sizes_strides_policy="sizes",
            dispatch_device=True,
        )
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        print("dispatch", func.name())
        plain = [one.inner if isinstance(one, cls) else one for one in args]
        result = func(*plain, **(kwargs or {}))
        return cls(result) if isinstance(result, torch.Tensor) else result


def said(work: Callable[[], Any]) -> tuple[Any, str]:
    text = io.StringIO()
    with redirect_stdout(text):
        result = work()
    return result, text.getvalue()


def use_dispatch_mode_inside() -> Any:
    with Logs() as logs:
        x = torch.ones(2, requires_grad=True)
        (x * 2).sum().backward()
    return logs.seen


def use_function_mode_inside() -> Any:
    with LogsFunctions() as logs:
        torch.nn.functional.relu(torch.ones(2)) + 1
    return logs.seen


def count_flops() -> Any:
    counter = FlopCounterMode(display=False)
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    with counter:
        net(torch.ones(5, 3)).sum().backward()
    return counter.get_total_flops()


def default_device() -> Any:
    with torch.device("meta"):
        return torch.ones(3).device, torch.nn.Linear(2, 2).weight.device


def debug_mode() -> Any:
    with DebugMode() as mode:
        torch.mm(torch.ones(2, 2), torch.ones(2, 2)).relu()
    return mode.debug_string()


def talking_subclass() -> Any:
    x = torch.ones(3).as_subclass(Talks)
    return type(x + 1).__name__, (x * 2).sum().item(), x.shape, x.dtype


def wrapping_subclass() -> Any:
    x = Wraps(torch.ones(3))
    y = torch.add(x, 1)
    return type(y).__name__, y.inner.tolist()


def transforms() -> Any:
    from torch.func import functionalize, grad, jacrev, jvp, vmap

    x = torch.arange(6.0).reshape(2, 3)
    return (
        vmap(torch.dot)(x, x).tolist(),
        grad(lambda t: (t.sin() * t).sum())(x).tolist(),
        vmap(grad(lambda t: (t**3).sum()))(x).tolist(),
        jacrev(torch.tanh)(x[0]).tolist(),
        [one.tolist() for one in jvp(torch.exp, (x,), (x,))],
        functionalize(lambda t: t.clone().view(6).add_(1).sum())(x).item(),
        vmap(lambda t: t + torch.rand(3), randomness="different")(x).shape,
    )


def autocast_in_a_custom_kernel() -> Any:
    @torch.library.custom_op("test_modes::product", mutates_args=())
    def product(x: torch.Tensor) -> torch.Tensor:
        return (x @ x).to(torch.float32)

    x = torch.randn(8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return product(x).tolist()


def strange_layouts() -> Any:
    x = torch.eye(3)
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)])
    jagged = torch.nested.nested_tensor([torch.ones(2), torch.ones(4)], layout=torch.jagged)
    quantized = torch.quantize_per_tensor(x, 0.1, 0, torch.quint8)
    return (
        (x.to_sparse() + x.to_sparse()).coalesce().values().tolist(),
        (x.to_sparse_csr() @ x).tolist(),
        torch.nested.to_padded_tensor(nested * 2, 0.0).tolist(),
        (jagged + 1).values().tolist(),
        quantized.int_repr().tolist(),
        torch.ones(2, 2, device="meta").add(1).shape,
        x.to_mkldnn().relu().to_dense().tolist(),
    )


def inference_tensors() -> Any:
    with torch.inference_mode():
        x = torch.ones(3)
    try:
        x.add_(1)
    except RuntimeError as error:
        return x.tolist(), str(error)[:40]


def in_place_on_a_leaf() -> Any:
    x = torch.ones(3, requires_grad=True)
    try:
        x.add_(1)
    except RuntimeError as error:
        return str(error)[:40]


def parametrized() -> Any:
    torch.manual_seed(0)
    layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 2))
    layer(torch.ones(1, 3)).sum().backward()
    return layer.parametrizations.weight.original1.grad.tolist()


def numpy_and_lists() -> Any:
    import numpy

    x = torch.from_numpy(numpy.arange(4.0))
    return (
        numpy.asarray(x + 1).tolist(),
        list(torch.ones(3)),
        torch.tensor([[1, 2], [3, 4]]).tolist(),
    )


PROGRAMS = [
    use_dispatch_mode_inside,
    use_function_mode_inside,
    count_flops,
    default_device,
    debug_mode,
    talking_subclass,
    wrapping_subclass,
    transforms,
    strange_layouts,
    inference_tensors,
    in_place_on_a_leaf,
    parametrized,
    numpy_and_lists,
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layers", [("modules", "functions", "ops"), ("ops",), ("functions",)])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_does_the_same(program: Callable[[], Any], layers: tuple[str, ...]) -> None:
    torch.manual_seed(5)
    plain = said(program)
    torch.manual_seed(5)
    with di.trace(layers=layers) as trace:
        traced = said(program)
    assert repr(traced) == repr(plain)
    assert len(trace) > 0
    assert trace.notes == ()
    assert not any(event.is_open for event in trace.events)


def test_kernels_of_custom_operators_autocast_as_they_would() -> None:
    torch.manual_seed(5)
    with di.trace() as trace:
        traced = autocast_in_a_custom_kernel()
    torch.manual_seed(5)
    assert traced == autocast_in_a_custom_kernel()
    assert "test_modes::product" in trace.names()


@pytest.mark.parametrize("program", [count_flops, use_dispatch_mode_inside, transforms])
def test_recording_inside_another_mode(program: Callable[[], Any]) -> None:
    def inside() -> Any:
        with Logs() as logs:
            program()
        return logs.seen

    def recorded() -> Any:
        with Logs() as logs, di.trace() as trace:
            program()
        assert len(trace) > 0
        return logs.seen

    torch.manual_seed(5)
    plain = inside()
    torch.manual_seed(5)
    assert recorded() == plain


def test_calls_inside_a_subclass_are_nested_in_its_call() -> None:
    with di.trace(layers=("ops",)) as trace:
        said(wrapping_subclass)
    outer = trace.where("aten::add.Tensor")[0]
    assert outer.args["self"].subclass is not None
    assert outer.args["self"].subclass.endswith("Wraps")
    assert [child.name for child in outer.children] == ["aten::add.Tensor"]
    assert outer.children[0].args["self"].subclass is None


def test_modes_may_leave_in_any_order() -> None:
    first, second = di.trace(layers=("ops",)), di.trace(layers=("ops",))
    one = first.__enter__()
    two = second.__enter__()
    torch.ones(1)
    first.__exit__(None, None, None)
    torch.zeros(1)
    second.__exit__(None, None, None)
    torch.full((1,), 2.0)
    assert one.names() == ["aten::ones"]
    assert two.names() == ["aten::ones", "aten::zeros"]
    assert torch._C._len_torch_dispatch_stack() == 0
    assert torch._C._len_torch_function_stack() == 0


def test_ended_inside_a_traced_call() -> None:
    tracing = di.trace()
    trace = tracing.__enter__()

    class Ends(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x + 1
            tracing.__exit__(None, None, None)
            return y * 2

    assert Ends()(torch.ones(1)).tolist() == [4.0]
    assert trace.names(kind="op") == ["aten::ones", "aten::add.Tensor"]
    assert trace.names(kind="module") == ["Ends"]
    assert trace.notes == ()


def test_coroutines_keep_their_calls() -> None:
    class Waits(torch.nn.Module):
        async def forward(self, value: float) -> torch.Tensor:
            x = torch.full((1,), value)
            await asyncio.sleep(0.01 * value)
            return x * 2

    async def work() -> list[torch.Tensor]:
        net = Waits()
        return await asyncio.gather(*(net(float(number)) for number in (3, 1, 2)))

    with di.trace() as trace:
        results = asyncio.run(work())
    assert [one.item() for one in results] == [6.0, 2.0, 4.0]
    assert len(trace.where("aten::mul.Tensor")) == 3
    assert not any(event.is_open for event in trace.events)


def test_recording_inside_a_coroutine_and_a_generator() -> None:
    async def work() -> di.Trace:
        with di.trace(layers=("ops",)) as trace:
            torch.ones(1)
            await asyncio.sleep(0)
            torch.zeros(1)
        return trace

    assert asyncio.run(work()).names() == ["aten::ones", "aten::zeros"]

    def numbers():  # type: ignore[no-untyped-def]
        with di.trace(layers=("ops",)) as trace:
            yield torch.ones(1)
            yield trace

    steps = numbers()
    next(steps)
    trace = next(steps)
    torch.zeros(1)
    steps.close()
    torch.full((1,), 1.0)
    assert trace.names() == ["aten::ones", "aten::zeros"]
    assert torch._C._len_torch_dispatch_stack() == 0


def test_a_signal_handler_may_call_torch() -> None:
    calls = []

    def handler(*_: object) -> None:
        calls.append(torch.zeros(2).sum().item())

    previous = signal.signal(signal.SIGALRM, handler)
    try:
        with di.trace() as trace:
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
            while len(calls) < 100:
                torch.ones(2) * 3
            signal.setitimer(signal.ITIMER_REAL, 0)
            torch.full((1,), 1.0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    # those that interrupt the recorder itself, whose modes are off then, are not seen
    assert 0 < len(trace.where("aten::zeros")) <= len(calls)
    assert trace.where("aten::full")[0].depth == 1
    assert not any(event.is_open for event in trace.events)


def test_gradients_that_meet_are_noted() -> None:
    x = torch.ones(2, requires_grad=True)
    with di.trace() as trace:
        y = x.exp()
        (y * 2 + y * 3).sum().backward()
    noted = [event for event in trace.events if event.note and event.note.rule == "accumulate-grad"]
    assert [event.name for event in noted] == ["aten::add.Tensor"]
