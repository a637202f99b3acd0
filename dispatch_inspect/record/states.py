"""Grad mode, inference mode, autocast and the dispatcher's thread-local key sets, as one number."""

from __future__ import annotations

from typing import Any

import torch
from torch import is_grad_enabled, is_inference_mode_enabled
from torch._C import (
    DispatchKeySet,
    _dispatch_tls_local_exclude_set,
    _dispatch_tls_local_include_set,
    _is_any_autocast_enabled,
    _len_torch_dispatch_stack,
)

from dispatch_inspect.store.records import KeyLayout, State
from dispatch_inspect.store.table_writer import TableWriter

_BACKEND_BITS = 16
_FIRST_UNUSABLE_BIT = 62


def _bit_name(bits: int) -> str:
    return str(DispatchKeySet.from_raw_repr(bits)).removeprefix("DispatchKeySet(").rstrip(")")


def key_layout() -> KeyLayout:
    """What the bits of a raw key set mean, asked from PyTorch itself."""
    dense = next(b for b in range(_BACKEND_BITS, 64) if _bit_name((1 << b) | 1) == "CPU")
    backends: list[str] = []
    for backend in range(dense):
        backends.append(_bit_name((1 << dense) | (1 << backend)))
    functionalities: list[tuple[str, ...]] = []
    for bit in range(dense, _FIRST_UNUSABLE_BIT):
        single = _bit_name(1 << bit)
        if single and _bit_name((1 << bit) | 1) == single:
            functionalities.append((single,))
        else:
            functionalities.append(
                tuple(_bit_name((1 << bit) | (1 << backend)) for backend in range(dense))
            )
    return KeyLayout(backends=tuple(backends), functionalities=tuple(functionalities))


def _mask(layout: KeyLayout, wanted: Any) -> int:
    first = len(layout.backends)
    return sum(
        1 << (first + place)
        for place, names in enumerate(layout.functionalities)
        if len(names) == 1 and wanted(names[0])
    )


class StateReader:
    """Tells the state of the thread, at the call or below the modes."""

    def __init__(self, table: TableWriter, layout: KeyLayout) -> None:
        self._table = table
        self._ids = table.ids
        #: numbers of the states without autocast, by grad mode and inference mode
        self._plain = [0, 0, 0, 0]
        #: what ``read`` found last, and the two modes then
        self._last = (0, -1, -1, False, False, False)
        first = len(layout.backends)
        self._autocast = {
            1 << (first + place): names[0].removeprefix("Autocast").lower()
            for place, names in enumerate(layout.functionalities)
            if names[0].startswith("Autocast")
        }
        self._autocast_mask = sum(self._autocast)
        self._not_python = ~_mask(layout, lambda name: name in ("Python", "PythonTLSSnapshot"))

    def read_python(self) -> int:
        """The state of Python code, where the thread's key sets say nothing more than the modes."""
        if _is_any_autocast_enabled():
            return self.read()[0]
        place = is_grad_enabled() + 2 * is_inference_mode_enabled()
        return self._plain[place] or self._learn_plain(place)

    def _learn_plain(self, place: int) -> int:
        number = self._table.intern(
            place, lambda: State(grad=bool(place & 1), inference=bool(place & 2))
        )
        self._plain[place] = number
        return number

    def read(self) -> tuple[int, int, int, bool]:
        """The state now: its number, its raw key sets (included, excluded), and if it autocasts."""
        return self.number(_dispatch_tls_local_include_set(), _dispatch_tls_local_exclude_set())

    def number(
        self, included_set: DispatchKeySet, excluded_set: DispatchKeySet
    ) -> tuple[int, int, int, bool]:
        """Likewise for key sets that the thread had a moment ago."""
        included, excluded = included_set.raw_repr(), excluded_set.raw_repr()
        if not _len_torch_dispatch_stack():
            # with no other mode below, these keys are the tracer's own doing
            included &= self._not_python
        grad, inference = is_grad_enabled(), is_inference_mode_enabled()
        last = self._last
        if (
            excluded == last[2]
            and included == last[1]
            and grad is last[4]
            and inference is last[5]
            and not last[3]
        ):
            return last[:4]
        key: tuple[Any, ...] = (grad, inference, included, excluded)
        autocasts = excluded & self._autocast_mask != self._autocast_mask
        if autocasts:
            key += tuple(self._dtypes(excluded).items())
        found = self._ids.get(key)
        if found is None:
            found = self._table.intern(
                key,
                lambda: State(
                    grad=key[0],
                    inference=key[1],
                    autocast=self._dtypes(excluded) if autocasts else {},
                    included=included,
                    excluded=excluded,
                ),
            )
        self._last = (found, included, excluded, autocasts, grad, inference)
        return found, included, excluded, autocasts

    def _dtypes(self, off: int) -> dict[str, str]:
        dtypes = {}
        for bit, device in self._autocast.items():
            if off & bit:
                continue
            if device == "privateuse1":
                device = torch._C._get_privateuse1_backend_name()
            try:
                dtypes[device] = str(torch.get_autocast_dtype(device)).removeprefix("torch.")
            except RuntimeError:
                # this build has no autocast for the device
                continue
        return dtypes
