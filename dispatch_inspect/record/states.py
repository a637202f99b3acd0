"""Grad mode, inference mode, autocast and the dispatcher's thread-local key sets, as one number."""

from __future__ import annotations

from typing import Any

import torch
from torch._C import (
    DispatchKeySet,
    _dispatch_tls_local_exclude_set,
    _dispatch_tls_local_include_set,
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
        if torch._C._is_any_autocast_enabled():
            return self.read()[0]
        key = (torch.is_grad_enabled(), torch.is_inference_mode_enabled())
        return self._ids.get(key) or self._table.intern(
            key, lambda: State(grad=key[0], inference=key[1])
        )

    def read(self) -> tuple[int, int, int]:
        """The number of the state now, and its raw included and excluded key sets.

        Inside a dispatch mode's handler, restore the snapshot first: it holds the key sets that the
        dispatcher was entered with.
        """
        included = _dispatch_tls_local_include_set().raw_repr()
        excluded = _dispatch_tls_local_exclude_set().raw_repr()
        if not _len_torch_dispatch_stack():
            # with no other mode below, these keys are the tracer's own doing
            included &= self._not_python
        key: tuple[Any, ...] = (
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            included,
            excluded,
        )
        if self.autocasts(excluded):
            key += tuple(self._dtypes(excluded).items())
        found = self._ids.get(key)
        if found is None:
            found = self._table.intern(
                key,
                lambda: State(
                    grad=key[0],
                    inference=key[1],
                    autocast=self._dtypes(excluded) if self.autocasts(excluded) else {},
                    included=included,
                    excluded=excluded,
                ),
            )
        return found, included, excluded

    def autocasts(self, excluded: int) -> bool:
        """Whether autocast is on for any device, by the excluded key set."""
        return excluded & self._autocast_mask != self._autocast_mask

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
