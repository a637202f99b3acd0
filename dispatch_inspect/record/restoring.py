"""Calls an operator as it would have been called without the tracer's mode.

PyTorch runs a mode's handler with every key above Python excluded. Kernels that call operators
themselves then run differently: autograd does not see inside an operator that has no autograd
kernel (its gradient is lost), autocast casts nothing, and the conjugate bit of a view made inside
a kernel is overlooked. So such calls get the thread's key sets back as they were when the
dispatcher was entered, less what the kernels above Python had excluded on their way down.
"""

from __future__ import annotations

from typing import Any

from torch._C import DispatchKeySet, _ForceDispatchKeyGuard

from dispatch_inspect.store.records import KeyLayout

#: keys whose kernels exclude themselves for everything they call
_EXCLUDING = ("Autograd", "ADInplaceOrView")


def excluding_mask(layout: KeyLayout) -> int:
    """The bits that an autograd kernel excludes for the kernels below it."""
    first = len(layout.backends)
    return sum(
        1 << (first + place)
        for place, names in enumerate(layout.functionalities)
        if any(name.startswith(_EXCLUDING) for name in names)
    )


def has_autograd_kernel(kernels: dict[str, tuple[str, ...]]) -> bool:
    """Whether a dispatch table answers AutogradCPU with more than the fallback."""
    return any(
        "AutogradCPU" in keys and "VariableFallbackKernel" not in text
        for text, keys in kernels.items()
    )


def call_restored(included: int, excluded: int, func: Any, args: Any, kwargs: Any) -> Any:
    """Calls ``func`` with these raw key sets as the thread's."""
    with _ForceDispatchKeyGuard(
        DispatchKeySet.from_raw_repr(included), DispatchKeySet.from_raw_repr(excluded)
    ):
        return func(*args, **kwargs)
