"""Arguments and results as records: every kind of value, with a hole for each tensor.

A value is never formatted: objects that are not plain data are known by their type only, since
their ``repr`` may run user code, dispatch operators or be endless.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from dispatch_inspect.record.probe import ProbeTensorReader
from dispatch_inspect.record.tensors import TensorReader
from dispatch_inspect.store.lane_writer import Operand
from dispatch_inspect.store.records import Values
from dispatch_inspect.store.table_writer import TableWriter

#: elements kept of a long list without tensors; it says how many more there were
LIST_LIMIT = 64
#: characters of a text that are kept
TEXT_LIMIT = 2_000
_BIG = 1 << 256

_NAMED = {
    torch.dtype: "dtype",
    torch.device: "device",
    torch.layout: "layout",
    torch.memory_format: "memory_format",
}
#: hashable types whose equal values of equal type are recorded alike
_ATOMS = frozenset({str, bool, type(None), *_NAMED})
_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_TENSOR = object()
_KEYWORDS = object()
#: any tensor: only that it is one is recorded of it
_A_TENSOR = torch.Tensor()
_END = object()


class ValueReader:
    """Turns the values of a call into one number of the ``values`` table and operands."""

    def __init__(self, table: TableWriter, tensors: TensorReader | ProbeTensorReader) -> None:
        self._table = table
        self._ids = table.ids
        self._tensors = tensors
        self._read = tensors.read
        #: how many arguments, all tensors -> their number
        self._only_tensors: dict[int, int] = {}
        #: the number of a result that is one tensor
        self.one_tensor = self._learn((_TENSOR,), (_A_TENSOR,), {})

    def read_arguments(
        self, args: Sequence[Any], kwargs: Mapping[str, Any] | None, operands: list[Operand]
    ) -> int:
        """The number of the arguments' shape; appends their tensors to ``operands``."""
        if not kwargs:
            # most calls: nothing but tensors
            read, place = self._read, 0
            for value in args:
                kind = type(value)
                if kind is not Tensor and kind is not Parameter:
                    break
                read(value, operands)
                place += 1
            else:
                return self._only_tensors.get(place) or self._learn_tensors(place)
            parts: list[Any] = [_TENSOR] * place
            self._read_all(args[place:], parts, operands)
            key = tuple(parts)
            return self._ids.get(key) or self._learn(key, args, {})
        parts = []
        self._read_all(args, parts, operands)
        parts.append(_KEYWORDS)
        for name, value in kwargs.items():
            parts.append(name)
            self._read_all((value,), parts, operands)
        key = tuple(parts)
        return self._ids.get(key) or self._learn(key, args, kwargs)

    def _learn_tensors(self, count: int) -> int:
        number = self._learn((_TENSOR,) * count, (_A_TENSOR,) * count, {})
        self._only_tensors[count] = number
        return number

    def _learn(self, key: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
        return self._table.intern(
            key,
            lambda: Values(
                args=tuple(_form(value) for value in args),
                kwargs={str(name): _form(value) for name, value in kwargs.items()},
            ),
        )

    def read_result(self, result: Any, operands: list[Operand]) -> int:
        """The number of the result's shape; a tuple's or list's elements are the outputs."""
        kind = type(result)
        if result is None:
            return self.read_arguments((), {}, operands)
        if isinstance(result, (tuple, list)) and kind is not torch.Size:
            return self.read_arguments(result, {}, operands)
        return self.read_arguments((result,), {}, operands)

    def _read_all(self, values: Sequence[Any], parts: list[Any], operands: list[Operand]) -> None:
        for value in values:
            kind = type(value)
            if kind is Tensor or kind is Parameter:
                self._read(value, operands)
                parts.append(_TENSOR)
            elif kind is int:
                parts.append(value if -_BIG < value < _BIG else "int")
            elif kind in _ATOMS:
                parts.append(kind)
                parts.append(value if kind is not str else value[: TEXT_LIMIT + 1])
            elif kind is float:
                # 0.0 and -0.0 are equal, nan is not: their text tells them apart
                parts.append(float)
                parts.append(value if value and value == value else repr(value))
            else:
                self._read_other(kind, value, parts, operands)

    def _read_other(
        self, kind: type, value: Any, parts: list[Any], operands: list[Operand]
    ) -> None:
        if isinstance(value, torch.Tensor):
            self._tensors.read_guarded(value, operands)
            parts.append(_TENSOR)
        elif issubclass(kind, (tuple, list)):
            parts.append(list if issubclass(kind, list) else tuple)
            kept = _kept(value)
            self._read_all(kept, parts, operands)
            if len(kept) < len(value):
                parts.append(("more", len(value)))
            parts.append(_END)
        elif kind is dict:
            parts.append(dict)
            for name, one in value.items():
                self._read_all((name, one), parts, operands)
            parts.append(_END)
        else:
            parts.append(kind)
            parts.append(repr(_form(value)))


def _kept(values: Sequence[Any]) -> Sequence[Any]:
    """What is kept of a list: all of a list of tensors, the first LIST_LIMIT of other long ones."""
    if len(values) <= LIST_LIMIT:
        return values
    first = values[:LIST_LIMIT]
    return values if any(isinstance(value, torch.Tensor) for value in first) else first


def _form(value: Any) -> Any:
    """The JSON form of a value, as records.Values describes it."""
    kind = type(value)
    if value is None or kind is bool:
        return value
    if isinstance(value, torch.Tensor):
        return {"tensor": None}
    if kind is int:
        if -_BIG < value < _BIG:
            return value
        return {"text": f"{hex(value)[:40]}...", "length": value.bit_length()}
    if kind is float:
        finite = value == value and abs(value) != float("inf")
        return value if finite else {"float": repr(value)}
    if kind is str:
        if len(value) <= TEXT_LIMIT:
            return value
        return {"text": value[:TEXT_LIMIT], "length": len(value)}
    return _form_of_other(kind, value)


def _form_of_other(kind: type, value: Any) -> Any:
    if issubclass(kind, (tuple, list)):
        kept = [_form(one) for one in _kept(value)]
        if len(kept) < len(value):
            kept.append({"more": len(value) - len(kept)})
        return kept if issubclass(kind, list) else {"tuple": kept}
    if kind is dict:
        return {"dict": [[_form(name), _form(one)] for name, one in value.items()]}
    if kind in (set, frozenset):
        return {"set": [_form(one) for one in value]}
    if kind is slice:
        return {"slice": [_form(value.start), _form(value.stop), _form(value.step)]}
    if kind is complex:
        return {"complex": [repr(value.real), repr(value.imag)]}
    if kind in _NAMED:
        return {_NAMED[kind]: str(value).removeprefix("torch.")}
    if kind in _SYMBOLS:
        return {"symbol": _symbol(value)}
    return {"object": f"{kind.__module__}.{kind.__qualname__}"}


def _symbol(value: Any) -> str:
    """The expression of a symbolic number, without asking for its value."""
    try:
        return str(value.node.expr)
    except Exception:
        # a node of a foreign kind: it has no expression to show
        return "?"
