"""Dispatch keys without PyTorch: what the bits of a key set mean, in the order of priority.

The names are PyTorch's own and may be ones this tool has never heard of: a trace carries the
layout that its PyTorch used.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol


class Layout(Protocol):
    """What each bit of a raw key set means (store.records.KeyLayout)."""

    @property
    def backends(self) -> tuple[str, ...]:
        """Names of the backend bits, lowest first."""

    @property
    def functionalities(self) -> tuple[tuple[str, ...], ...]:
        """Names of the bits above them, lowest first: one name each, or one a backend."""


@lru_cache(maxsize=65_536)
def _names(
    raw: int, backends: tuple[str, ...], functionalities: tuple[tuple[str, ...], ...]
) -> tuple[str, ...]:
    first = len(backends)
    chosen = [place for place in range(first) if raw >> place & 1]
    found: list[str] = []
    for place in range(len(functionalities) - 1, -1, -1):
        if not raw >> (first + place) & 1:
            continue
        keys = functionalities[place]
        if len(keys) == 1:
            found.append(keys[0])
        else:
            found.extend(keys[backend] for backend in reversed(chosen) if backend < len(keys))
    return tuple(name for name in found if name)


def names(raw: int, layout: Layout) -> tuple[str, ...]:
    """The runtime keys of a raw key set, highest priority first."""
    return _names(raw, layout.backends, layout.functionalities)


#: beginnings of the names of keys that are handled before the Python key
_ABOVE = (
    "Autograd",
    "Autocast",
    "ADInplaceOrView",
    "FuncTorch",
    "Functionalize",
    "Conjugate",
    "Negative",
    "ZeroTensor",
    "Tracer",
    "Batched",
    "VmapMode",
    "DeferredInit",
    "PythonTLSSnapshot",
    "PythonDispatcher",
    "PreDispatch",
    "TESTING_ONLY",
)


def above_python(name: str) -> bool:
    """Whether a key has a higher priority than Python, where dispatch modes live."""
    return name.startswith(_ABOVE)


def role(name: str) -> str:
    """What a key is for: autograd, autocast, functorch, python, wrapper, select or backend."""
    for start, meaning in (
        ("Autograd", "autograd"),
        ("ADInplaceOrView", "autograd"),
        ("Autocast", "autocast"),
        ("FuncTorch", "functorch"),
        ("Batched", "functorch"),
        ("VmapMode", "functorch"),
        ("Python", "python"),
        ("PreDispatch", "python"),
        ("BackendSelect", "select"),
    ):
        if name.startswith(start):
            return meaning
    return "wrapper" if above_python(name) else "backend"


def answering(
    keyset: tuple[str, ...], kernels: dict[str, tuple[str, ...]]
) -> tuple[tuple[str, str], ...]:
    """The keys of a key set with a kernel of their own, as (key, kernel text), highest first.

    ``kernels`` is an operator's dispatch table: text -> keys. Fallthrough entries are passed by;
    the walk ends at the first backend, whose kernel does the work.
    """
    texts = {key: text for text, keys in kernels.items() for key in keys}
    found: list[tuple[str, str]] = []
    for key in (*keyset, "Undefined"):
        text = texts.get(key)
        if text is None or text.startswith("fallthrough"):
            continue
        if key == "Undefined" and found and not above_python(found[-1][0]):
            break
        found.append((key, text))
        if role(key) == "backend" or "[math kernel]" in text:
            break
    return tuple(found)
