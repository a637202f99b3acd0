"""Names of what is called: operators with dispatch tables, functions with parameters."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.overrides

from dispatch_inspect.record import notes, regions
from dispatch_inspect.record.restoring import has_autograd_kernel
from dispatch_inspect.store.records import FunctionName, OperatorName, RegionName
from dispatch_inspect.store.table_writer import TableWriter

if TYPE_CHECKING:
    from dispatch_inspect.record.thread import ThreadRecorder

_FOLLOWED = {**regions.MARKERS, **notes.NOTES}


class KnownOperator(NamedTuple):
    """What a call of an operator needs at once."""

    #: its number in the table of names
    number: int
    #: what calls it
    call: Callable[..., Any]
    #: whether autograd looks into its kernel, see restoring
    without_autograd: bool
    #: what follows a call: a region opens or closes, a note is made
    follow: Callable[[ThreadRecorder, int, Any], None] | None
    #: the operator, so that its address stays its own
    overload: Any


class NameReader:
    """Turns operators and functions into numbers of the ``names`` table."""

    def __init__(self, table: TableWriter) -> None:
        self._table = table
        #: read directly by the hot path. Operators by address: hashing one runs Python
        self.operators: dict[int, KnownOperator] = {}
        self.functions: dict[Any, int] = {}
        #: number -> name, for filters
        self.texts: dict[int, str] = {}
        self._parameters = torch.overrides.get_testing_overrides()

    def forget_tables(self) -> None:
        """Asks for every dispatch table again: registrations have changed."""
        self.operators = {}

    def operator(self, overload: Any) -> KnownOperator:
        """What there is to know of an operator overload (or higher-order operator)."""
        found = self.operators.get(id(overload))
        if found is None:
            record = _operator(overload)
            number = self._table.intern(record.model_dump_json(), lambda: record)
            # calling the overload itself costs a Python frame more
            exact = type(overload) is torch._ops.OpOverload
            found = KnownOperator(
                number,
                overload._op if exact else overload,
                bool(record.kernels) and not has_autograd_kernel(record.kernels),
                _FOLLOWED.get(record.name),
                overload,
            )
            self.operators[id(overload)] = found
            self.texts[number] = record.name
        return found

    def function(self, function: Any) -> int:
        """The number of a function as TorchFunctionMode sees it."""
        found = self.functions.get(function)
        if found is None:
            record = FunctionName(
                kind="function", name=_function_name(function), arguments=self._arguments(function)
            )
            found = self._table.intern((record.kind, record.name, function), lambda: record)
            if len(self.functions) > 16_384:
                # functions made at run time must not be kept alive by the thousand
                self.functions.clear()
            self.functions[function] = found
            self.texts[found] = record.name
        return found

    def region(self, name: str, category: str) -> int:
        """The number of a region."""
        return self._table.intern(
            ("region", name, category),
            lambda: RegionName(kind="region", name=name, category=category),
        )

    def _arguments(self, function: Any) -> tuple[str, ...]:
        """Parameter names: PyTorch's own table of signatures knows those of builtins."""
        try:
            signature = inspect.signature(self._parameters.get(function, function))
        except (TypeError, ValueError):
            return ()
        return tuple(
            name
            for name, parameter in signature.parameters.items()
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        )


def _operator(overload: Any) -> OperatorName:
    if not isinstance(overload, torch._ops.OpOverload):
        # a higher-order operator: it has no schema and no dispatcher entry
        namespace = getattr(overload, "namespace", None) or "higher_order"
        return OperatorName(kind="op", name=f"{namespace}::{overload.name()}")
    schema = overload._schema
    name = overload.name()  # type: ignore[no-untyped-call]
    return OperatorName(
        kind="op",
        name=name,
        schema_text=str(schema),
        arguments=tuple(argument.name for argument in schema.arguments),
        argument_aliases=tuple(_alias(argument) for argument in schema.arguments),
        return_aliases=tuple(_alias(returned) for returned in schema.returns),
        kernels=_kernels(name),
    )


def _alias(argument: Any) -> str:
    info = argument.alias_info
    if info is None:
        return ""
    return "|".join(sorted(info.before_set)) + ("!" if info.is_write else "")


def _kernels(name: str) -> dict[str, tuple[str, ...]]:
    """The computed dispatch table, keys grouped by the kernel that answers them."""
    try:
        dump = torch._C._dispatch_dump_table(name)
    except RuntimeError:
        return {}
    keys: defaultdict[str, list[str]] = defaultdict(list)
    for line in dump.splitlines():
        key, _, text = line.partition(": ")
        if text:
            keys[text].append(key)
    return {text: tuple(found) for text, found in keys.items()}


def _function_name(function: Any) -> str:
    """The public name: PyTorch's own index names aliases ("torch.spmm" for torch.mm)."""
    own = getattr(function, "__name__", "")
    for prefix, home in (("torch", torch), ("torch.Tensor", torch.Tensor)):
        if own and getattr(home, own, None) is function:
            return f"{prefix}.{own}"
    try:
        name: str | None = torch.overrides.resolve_name(function)
    except (TypeError, AttributeError):
        # unhashable or without the attributes it expects
        name = None
    if name:
        return name
    module = getattr(function, "__module__", None)
    qualified = getattr(function, "__qualname__", None) or type(function).__qualname__
    owner = getattr(function, "__objclass__", None)
    if module is None and owner is not None:
        module = owner.__module__
    return f"{module}.{qualified}" if module else qualified
