"""Events in the notation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dispatch_inspect.notation import CallPattern, Operand, TensorPattern
from dispatch_inspect.store.event import Event
from dispatch_inspect.store.tensor import TensorInfo


def pattern_of(event: Event) -> CallPattern:
    """The line that writes an event, without its children."""
    raised = event.error
    error = raised.type.split(".")[-1] if raised else "open" if event.is_open else None
    outputs = tuple(_operands(event.outputs))
    is_call = event.kind != "region"
    return CallPattern(
        name=event.name,
        kind=event.kind,
        key=event.key if event.kind == "hop" else None,
        inputs=(tuple(_operands(event.args.values())) or None) if is_call else None,
        outputs=outputs or None,
        error=error,
    )


def _operands(values: Iterable[Any]) -> Iterable[Operand]:
    for value in values:
        if isinstance(value, TensorInfo):
            yield tensor_of(value)
        elif isinstance(value, (list, tuple)):
            inner = tuple(tensor_of(one) for one in value if isinstance(one, TensorInfo))
            if inner:
                yield inner


def tensor_of(info: TensorInfo) -> TensorPattern:
    """A tensor in the notation: strides only when it is not contiguous."""
    return TensorPattern(
        dtype=info.dtype,
        shape=info.shape,
        strides=info.strides if info.is_contiguous is False else None,
        layout=info.layout or "strided",
        device=info.device or "cpu",
    )
