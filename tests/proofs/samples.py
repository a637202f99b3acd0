"""Every operator of PyTorch's own test database, run the same way twice."""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map

#: samples of each operator and dtype
SAMPLES = 4
#: what the second dtype of an operator is: where conjugate bits and casts show
EXTRA_DTYPES = (torch.complex64, torch.bfloat16, torch.int64)

OPERATORS = {
    (op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")): op for op in op_db
}


def dtypes(op: Any) -> Iterator[torch.dtype]:
    """float32, or the first dtype an operator takes, and one more."""
    supported = op.supported_dtypes("cpu")
    first = torch.float32 if torch.float32 in supported else sorted(supported, key=str)[:1]
    if isinstance(first, list):
        yield from first
    else:
        yield first
    yield from itertools.islice((one for one in EXTRA_DTYPES if one in supported), 1)


def samples(op: Any, dtype: torch.dtype) -> list[Any]:
    """The first samples of an operator, the same ones at each call."""
    torch.manual_seed(1)
    grad = op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    found: list[Any] = []
    for sample in op.sample_inputs("cpu", dtype, requires_grad=grad):
        found.append(sample)
        if len(found) == SAMPLES:
            break
    return found


def fresh(value: Any) -> Any:
    """A copy of a sample's arguments which shares nothing with it."""

    def copy(one: Any) -> Any:
        if not isinstance(one, torch.Tensor):
            return one
        return one.detach().clone().requires_grad_(one.requires_grad)

    return tree_map(copy, value)


def outcome(op: Any, sample: Any) -> dict[str, Any]:
    """Everything that can be seen of one call: results, gradients, inputs after, errors, RNG."""
    torch.manual_seed(2)
    inputs, args, kwargs = fresh((sample.input, sample.args, sample.kwargs))
    seen: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _attempt(seen, "call", lambda: op.op(inputs, *args, **kwargs))
        result = seen.get("call")
        leaves = [one for one in tree_flatten((inputs, args, kwargs))[0] if _requires_grad(one)]
        outputs = [one for one in tree_flatten(result)[0] if _requires_grad(one)]
        if leaves and outputs:
            _attempt(seen, "backward", lambda: _gradients(outputs, leaves))
        seen["inputs"] = (inputs, args, kwargs)
        seen["random"] = torch.get_rng_state()
    return seen


def _requires_grad(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _gradients(outputs: list[torch.Tensor], leaves: list[torch.Tensor]) -> Any:
    ones = [torch.ones_like(one) for one in outputs]
    return torch.autograd.grad(outputs, leaves, ones, allow_unused=True)


def _attempt(seen: dict[str, Any], name: str, call: Callable[[], Any]) -> None:
    try:
        seen[name] = call()
    except Exception as error:  # whatever it raises is part of the outcome
        seen[f"{name} raised"] = (type(error).__name__, str(error))


def same(before: dict[str, Any], after: dict[str, Any], with_values: bool = True) -> bool:
    """Whether two outcomes cannot be told apart."""
    return fingerprint(before, with_values) == fingerprint(after, with_values)


def close(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether two outcomes differ in nothing but the last bits of values."""
    pairs = zip(tree_flatten(before)[0], tree_flatten(after)[0], strict=False)
    return same(before, after, with_values=False) and all(
        torch.allclose(one, other, rtol=1e-3, atol=1e-4, equal_nan=True)
        for one, other in pairs
        if isinstance(one, torch.Tensor)
    )


def repeats_itself(op: Any, sample: Any, before: dict[str, Any], times: int = 2000) -> bool:
    """Whether the untraced call has this outcome every time.

    Not all do: linalg.lstsq(driver="gelsy") has other last bits in 3 of 100 calls, as the memory
    that it happens to be given has another content.
    """
    chance = random.Random(3)
    held: list[Any] = []
    for _ in range(times):
        held.append(bytearray(chance.randint(1, 5000)))
        if len(held) > 50:
            held.pop(chance.randrange(50))
        if not same(before, outcome(op, sample)):
            return False
    return True


def fingerprint(value: Any, with_values: bool = True) -> Any:
    """Something that is equal exactly when two outcomes cannot be told apart."""
    leaves, spec = tree_flatten(value)
    return str(spec), [
        _of_tensor(one, with_values) if isinstance(one, torch.Tensor) else repr(one)
        for one in leaves
    ]


def _of_tensor(tensor: torch.Tensor, with_values: bool) -> Any:
    facts: list[Any] = [
        type(tensor).__name__,
        tensor.dtype,
        tuple(tensor.shape),
        tensor.layout,
        tensor.requires_grad,
        type(tensor.grad_fn).__name__,
    ]
    if tensor.layout is not torch.strided:
        parts = {
            torch.sparse_coo: ("_indices", "_values"),
            torch.sparse_csr: ("crow_indices", "col_indices", "values"),
            torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
            torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
            torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
        }[tensor.layout]
        inner = [_of_tensor(getattr(tensor.detach(), part)(), with_values) for part in parts]
        return facts + inner
    facts += [tensor.stride(), tensor.is_conj(), tensor.is_neg()]
    if with_values:
        dense = torch.empty(tensor.numel(), dtype=tensor.dtype)
        dense.copy_(tensor.detach().reshape(-1))
        facts.append(dense.view(torch.uint8).numpy().tobytes())
    return facts
