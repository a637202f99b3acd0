"""What is kept of a tensor: a descriptor and three identities, never the tensor.

Reading metadata is not passive. Attribute reads re-enter a user's ``__torch_function__``; some
dispatch into a subclass's ``__torch_dispatch__``; many raise for some layout or wrapper. So plain
tensors are read with one burst of getters known to be silent, and everything else one guarded
getter at a time, with function modes off and dispatch into user code refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any
from weakref import ref

import torch
from torch._C import (
    DisableTorchFunction,
    _dispatch_keys,
    _pop_torch_dispatch_stack,
    _push_on_torch_dispatch_stack,
)
from torch.utils._python_dispatch import TorchDispatchMode

from dispatch_inspect.store.lane_writer import Operand
from dispatch_inspect.store.records import Descriptor
from dispatch_inspect.store.table_writer import TableWriter

#: types whose metadata is read without running anybody's Python
PLAIN_TYPES = frozenset({torch.Tensor, torch.nn.Parameter})

_NO_OVERRIDE = torch._C._disabled_torch_dispatch_impl


_Known = tuple[Any, int, Any, int, Any, int]


def _gone() -> None:
    """Stands for the weak reference to a storage that there is not."""


def _sweep(known: dict[int, Any]) -> None:
    """Forgets what has died."""
    for address, one in list(known.items()):
        if one[0]() is None:
            known.pop(address, None)


class _RefuseDispatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sits on top of the mode stack while a subclass is read, so that no user code is entered."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise _Unreadable


class _Unreadable(Exception):
    pass


class TensorReader:
    """Turns tensors into numbers for the operand columns."""

    def __init__(self, table: TableWriter) -> None:
        self._table = table
        self._ids = table.ids
        #: address -> what is remembered of a tensor while it lives, weak references only:
        #: (tensor, its number, storage, its number, dtype, kind); a dead reference tells an
        #: address that was reused. ``kind`` numbers (type, dtype, device, key set).
        self.known: dict[int, _Known] = {}
        self._storages: dict[int, tuple[ref[Any], int]] = {}
        self._tensor_numbers = itertools.count(1)
        self._storage_numbers = itertools.count(1)
        self._kinds: dict[Any, int] = {}
        self._sweep_at = 4096
        self._refuse = _RefuseDispatch()  # type: ignore[no-untyped-call]
        #: whether any tensor read so far was complex: from then on views may have conjugate bits
        self.saw_complex = False

    def read(self, tensor: torch.Tensor, operands: list[Operand]) -> _Known | None:
        """Appends descriptor, tensor, storage and version numbers of a plain tensor.

        Returns what is remembered of it, or None when it could not be read in one burst.
        """
        try:
            known = self.known.get(id(tensor))
            storage = tensor.untyped_storage()
            dtype = tensor.dtype
            # a tensor's device and key set change only with its storage or dtype (x.data = y);
            # complex ones, whose conjugate bit may change, are never remembered with a dtype
            if (
                known is None
                or known[0]() is not tensor
                or known[2]() is not storage
                or known[4] is not dtype
            ):
                known = self._meet(tensor, known, storage, dtype)
            requires_grad = tensor.requires_grad
            key = (
                known[5],
                tensor.shape,
                tensor.stride(),
                tensor.storage_offset(),
                requires_grad,
                requires_grad and tensor.is_leaf,
                tensor._is_view(),
            )
            descriptor = self._ids.get(key)
            if descriptor is None:
                descriptor = self._table.intern(key, lambda: _describe(tensor, {}))
            operands.append((descriptor, known[1], known[3], tensor._version + 1))
            return known
        except (RuntimeError, TypeError, ValueError):
            # sparse, nested, functorch, inference or symbolic: one getter at a time
            self.read_guarded(tensor, operands)
            return None

    def _meet(
        self, tensor: torch.Tensor, known: _Known | None, storage: Any, dtype: Any | None
    ) -> _Known:
        """Remembers a tensor, or what has changed about it."""
        kind = (type(tensor), dtype, tensor.device, _dispatch_keys(tensor).raw_repr())
        kind_number = self._kinds.get(kind)
        if kind_number is None:
            kind_number = self._kinds.setdefault(kind, len(self._kinds))
        met = self._storages.get(id(storage))
        if met is None or met[0]() is not storage:
            met = self._storages[id(storage)] = (ref(storage), next(self._storage_numbers))
        if known is not None and known[0]() is tensor:
            reference, number = known[:2]
        elif len(self.known) < self._sweep_at:
            reference, number = ref(tensor), next(self._tensor_numbers)
        else:
            reference, number = self._identity(tensor)
        if dtype is not None and dtype.is_complex:
            self.saw_complex = True
            dtype = None
        known = self.known[id(tensor)] = (reference, number, met[0], met[1], dtype, kind_number)
        return known

    def _identity(self, tensor: torch.Tensor) -> tuple[ref[torch.Tensor], int]:
        if len(self.known) >= self._sweep_at:
            _sweep(self.known)
            _sweep(self._storages)
            self._sweep_at = max(4096, 2 * len(self.known))
        return ref(tensor), next(self._tensor_numbers)

    def _meet_storage(self, storage: Any) -> int:
        met = self._storages.get(id(storage))
        if met is None or met[0]() is not storage:
            met = self._storages[id(storage)] = (ref(storage), next(self._storage_numbers))
        return met[1]

    def read_guarded(self, tensor: torch.Tensor, operands: list[Operand]) -> None:
        """Likewise for any tensor; what cannot be read without running user code is left out."""
        overrides = type(tensor).__torch_dispatch__ is not _NO_OVERRIDE
        with DisableTorchFunction():
            try:
                if overrides:
                    _push_on_torch_dispatch_stack(self._refuse)
                record = _describe(tensor, vars(tensor) if overrides else {})
                storage = _attempt(lambda: self._meet_storage(tensor.untyped_storage()))
                version = _attempt(lambda: tensor._version + 1)
            finally:
                if overrides:
                    _pop_torch_dispatch_stack(None)
        known = self.known.get(id(tensor))
        if known is None or known[0]() is not tensor:
            known = (*self._identity(tensor), _gone, 0, None, 0)
            self.known[id(tensor)] = known
        descriptor = self._table.intern(record.model_dump_json(), lambda: record)
        operands.append((descriptor, known[1], storage or 0, version or 0))


def _attempt(getter: Callable[[], Any]) -> Any:
    """What ``getter`` returns, or None when it raises: a value that cannot be read is None."""
    try:
        return getter()
    except Exception:
        # whatever a getter raises (each layout and wrapper has its own), it is not there to read
        return None


def _size(value: Any) -> int | str:
    """A size as a number, or the text of a symbolic one; asking a symbol for an int would guard."""
    if type(value) is int:
        return value
    return str(_attempt(lambda: value.node.expr) or "?")


def _sizes(value: Any) -> tuple[int | str, ...] | None:
    return None if value is None else tuple(_size(one) for one in value)


def _short(value: Any) -> str | None:
    return None if value is None else str(value).removeprefix("torch.")


def _describe(tensor: torch.Tensor, known: dict[str, Any]) -> Descriptor:
    """A tensor's descriptor; ``known`` holds attributes a subclass keeps in plain sight."""
    device = known.get("_fake_device", known.get("fake_device")) or _attempt(lambda: tensor.device)
    shape = _attempt(lambda: tensor.shape)
    offset = _attempt(tensor.storage_offset)
    symbolic = shape is not None and any(type(one) is not int for one in shape)
    kind = type(tensor)
    return Descriptor(
        dtype=_short(_attempt(lambda: tensor.dtype)),
        device=None if device is None else str(device),
        shape=_sizes(shape if shape is not None else known.get("_size")),
        strides=_sizes(_attempt(tensor.stride)),
        storage_offset=None if offset is None else _size(offset),
        layout=_short(_attempt(lambda: tensor.layout)),
        keys=_attempt(lambda: _dispatch_keys(tensor).raw_repr()) or 0,
        requires_grad=_attempt(lambda: tensor.requires_grad),
        is_leaf=_attempt(lambda: tensor.is_leaf),
        is_view=_attempt(tensor._is_view),
        nbytes=None if symbolic else _attempt(lambda: tensor.nbytes),
        subclass=None if kind is torch.Tensor else f"{kind.__module__}.{kind.__qualname__}",
    )
