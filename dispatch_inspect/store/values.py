"""From records.Values back to Python values, with a TensorInfo in the place of each tensor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dispatch_inspect.store.tensor import TensorInfo


@dataclass(frozen=True, slots=True)
class Opaque:
    """A value that is known by its kind and a text: a dtype, a device, an object's type ..."""

    kind: str
    text: str

    def __str__(self) -> str:
        if self.kind in ("dtype", "layout", "memory_format"):
            return f"torch.{self.text}"
        if self.kind == "object":
            return f"<{self.text}>"
        return self.text

    __repr__ = __str__


def decode(form: Any, tensors: Iterator[TensorInfo]) -> Any:
    """The value a JSON form stands for; each tensor hole takes the next of ``tensors``."""
    if isinstance(form, list):
        return [decode(one, tensors) for one in form]
    if not isinstance(form, dict) or not form:
        return form
    kind, inner = next(iter(form.items()))
    if kind == "tensor":
        return next(tensors, TensorInfo())
    if kind == "tuple" and isinstance(inner, list):
        return tuple(decode(one, tensors) for one in inner)
    if kind == "dict" and isinstance(inner, list):
        pairs = (decode(one, tensors) for one in inner)
        return {
            str(pair[0]): pair[1] for pair in pairs if isinstance(pair, list) and len(pair) == 2
        }
    if kind == "set" and isinstance(inner, list):
        return frozenset(str(decode(one, tensors)) for one in inner)
    if kind == "slice" and isinstance(inner, list) and len(inner) == 3:
        return slice(*(decode(one, tensors) for one in inner))
    return _decode_scalar(kind, inner, form)


def _decode_scalar(kind: str, inner: Any, form: dict[str, Any]) -> Any:
    try:
        if kind == "float":
            return float(inner)
        if kind == "complex":
            return complex(float(inner[0]), float(inner[1]))
    except (TypeError, ValueError, IndexError, KeyError, OverflowError):
        return Opaque(kind, str(inner))
    if kind == "more":
        return Opaque(kind, f"... {inner} more")
    if kind == "text":
        return Opaque(kind, f"{inner}... ({form.get('length')} in all)")
    return Opaque(str(kind), str(inner))


def tensors_in(value: Any) -> Iterator[TensorInfo]:
    """The tensors of a decoded value, in order."""
    if isinstance(value, TensorInfo):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from tensors_in(one)
    elif isinstance(value, dict):
        for one in value.values():
            yield from tensors_in(one)
