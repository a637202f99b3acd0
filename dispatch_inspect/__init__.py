"""See what PyTorch's dispatcher really did: record every call, browse it, assert it.

import dispatch_inspect as di

with di.trace("run.dtrace") as trace:
    ...
print(trace.tree(depth=3))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dispatch_inspect._version import __version__

if TYPE_CHECKING:
    from dispatch_inspect.errors import (
        DamagedTraceError,
        DispatchInspectError,
        FilterError,
        ForeignTraceError,
        NotationError,
        TraceExistsError,
        TraceNotFoundError,
        TraceReadError,
        TraceVersionError,
        TraceWriteError,
        UsageError,
    )
    from dispatch_inspect.reading import Trace, load
    from dispatch_inspect.record.tracing import trace
    from dispatch_inspect.store.event import Event
    from dispatch_inspect.store.tensor import TensorInfo

#: public name -> where it lives; loaded when first used, so that importing stays cheap
_HOMES = {
    "trace": "record.tracing",
    "load": "reading",
    "Trace": "reading",
    "Event": "store.event",
    "TensorInfo": "store.tensor",
    "DispatchInspectError": "errors",
    "UsageError": "errors",
    "FilterError": "errors",
    "NotationError": "errors",
    "TraceExistsError": "errors",
    "TraceWriteError": "errors",
    "TraceReadError": "errors",
    "TraceNotFoundError": "errors",
    "ForeignTraceError": "errors",
    "TraceVersionError": "errors",
    "DamagedTraceError": "errors",
}

__all__ = [
    "DamagedTraceError",
    "DispatchInspectError",
    "Event",
    "FilterError",
    "ForeignTraceError",
    "NotationError",
    "TensorInfo",
    "Trace",
    "TraceExistsError",
    "TraceNotFoundError",
    "TraceReadError",
    "TraceVersionError",
    "TraceWriteError",
    "UsageError",
    "__version__",
    "load",
    "trace",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "trace":
        from dispatch_inspect.record.requirement import require_torch

        require_torch()
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
